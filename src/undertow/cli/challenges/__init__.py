"""Commands on challenge sets: print, write and plan them."""
