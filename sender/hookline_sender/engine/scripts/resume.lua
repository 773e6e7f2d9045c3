-- What waited while a destination was paused may be claimed. ARGV: id.
return set_paused(ARGV[1], '0', clock())
