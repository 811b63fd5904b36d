"""Columns, conditions and rows, as all formats share them."""
