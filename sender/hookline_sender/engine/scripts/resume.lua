-- What waited while a destination was paused or disabled may be claimed. ARGV: id, lane of a static one or ''.
return set_paused(ARGV[1], ARGV[2], '0', clock())
