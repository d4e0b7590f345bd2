"""How the built-in worlds are drawn: ray caster, surfaces, layouts, sensors."""
