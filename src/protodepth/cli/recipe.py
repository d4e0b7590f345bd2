"""protodepth recipe"""

from dataclasses import dataclass

import tyro


@dataclass(frozen=True)
class ShowRecipe:
    """Every value of a recipe; of the paper's with the source of each: the paper, a published script, our choice.

    Where paper and scripts differ both have a name: paper-indoor?crop=scripts&schedule=readme (docs/recipes.md).
    """

    name: tyro.conf.Positional[str]
    """paper-indoor, paper-outdoor, paper-mixed (with choices after a question mark), all, or any other recipe."""
    markdown: bool = False
    """As Markdown: docs/recipes.md is 'recipe show all --markdown'."""

    def run(self) -> None:
        print(_recipe_text(self.name, markdown=self.markdown), end="" if self.markdown else "\n")


def _recipe_text(name: str, *, markdown: bool) -> str:
    import tomli_w

    from protodepth import config
    from protodepth.training import paper_recipes, published
    from protodepth.training.recipes import read_recipe

    names = tuple(published.SEQUENCES) if name == "all" else (name,)
    if name != "all" and not name.startswith("paper-"):
        return tomli_w.dumps(config.to_dict(read_recipe(name)))
    if markdown:
        return paper_recipes.as_markdown(names)
    return "\n\n".join(f"{one}\n{paper_recipes.as_text(one)}" for one in names)
