"""Siblings of the core: what nobody in the core imports."""
