"""Pages on which people annotate answers and write rephrasings."""
