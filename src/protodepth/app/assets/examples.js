// One listener for all buttons: they are written anew when another one is chosen.
element.addEventListener("click", event => {
  const button = event.target.closest("button[data-world]");
  if (!button) return;
  for (const other of element.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
  trigger("click", { world: button.dataset.world });
  if (window.innerWidth < 700) document.querySelector("#pd-result").scrollIntoView({ behavior: "smooth" });
});
