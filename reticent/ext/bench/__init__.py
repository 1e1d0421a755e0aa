"""How fast this machine is with documents of the reader's own."""
