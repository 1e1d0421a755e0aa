"""Tools that maintain the repository; no package, test or benchmark imports them."""
