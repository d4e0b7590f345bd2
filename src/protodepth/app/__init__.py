"""The local web page: ``work`` computes, ``view`` writes HTML, ``server`` binds both to gradio."""
