# Prints a trail of spin in columns, one per host. Its lines are "@HOST WHAT NUMBER...".

function slot(s,   p, m) {
	if (s == 255)
		return "unreadable"
	p = s % 4
	m = int(s / 4) % 2
	return sprintf("%s %s %d", substr("idle    choosingwaiting held    ", 8 * p + 1, 8), m ? "shared" : "exclusive", int(s / 8))
}

function record(r) {
	if (r == 255)
		return "unreadable"
	if (model == "cover")
		return sprintf("%s, highest %d", substr("virgin joininglive   left   ", 7 * (r % 4) + 1, 7), int(r / 4))
	if (r == 0)
		return "virgin"
	return sprintf("incarnation %d, %s", int(r / 8), r % 8 == 0 ? "joining" : r % 8 == 7 && model == "claim" ? "left" : "live, write " r % 8)
}

function entry(e) {
	return (e % 2 ? "x, created " : "free, ") int(e / 2)
}

function intent(i) {
	return i ? entry(int((i - 128) / 2)) " at " i % 2 + 1 : "nothing"
}

function directory() {
	if ($2 == "reads")
		return "reads " $3 + 1 ": " entry($4) (NF > 5 && !$6 ? " (on one member)" : "")
	if ($2 == "writes")
		return "writes " $3 + 1 ": " entry($4)
	if ($2 == "lands")
		return "lands on member " $3 + 1 ": " entry($5) " at " $4 + 1
	if ($2 == "intents")
		return "reads intents: " intent($3 + $4 + $5) ($6 + $7 + $8 ? ", " intent($6 + $7 + $8) : "")
	if ($2 == "intends" || $2 == "RETURNS")
		return $2 ": " intent($3)
	if ($2 == "slotlands")
		return "intent lands: " intent($3)
	if ($2 == "ENTERS" || $2 == "USES" || $2 == "TOLD" || $2 == "REMOVED")
		return $2 " " $3 + 1 ": " entry($4)
	return substr($0, 4)
}

function told() {
	if (model == "directory")
		return directory()
	if ($2 == "writes" || $2 == "lands" || $2 == "landslate")
		return ($2 == "landslate" ? "lands late" : $2) ": " (model == "lock" ? slot($3) : record($3))
	if ($2 == "reads" && (model == "lock" || model == "cover"))
		return "reads " $3 ": " (model == "lock" ? slot($4) : record($4))
	if ($2 == "reads")
		return "reads: " record($3)
	if ($2 ~ /^slot/)
		return "slot " substr($2, 5) ": " $3
	return substr($0, 4)
}

BEGIN {
	width = 38
	blank = sprintf("%152s", "")
}

/^@0 lands/ { print "    -- a write of nobody's lands: " record($3); next }
/^@0 tick/ { print "    -- a unit of time passes"; next }
/^@[0-9]/ {
	host = substr($1, 2) + 0
	indent = host > 1 ? (host - 1) * width : 0
	printf("    %s%s\n", substr(blank, 1, indent), told())
}
