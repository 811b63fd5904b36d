"""How values look to people: text made of values, without click and without a lake."""
