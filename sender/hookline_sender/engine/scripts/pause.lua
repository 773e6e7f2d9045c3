-- No more attempts to a destination start until it is resumed; publications still make tasks for it. ARGV: id.
return set_paused(ARGV[1], '', '1', clock())
