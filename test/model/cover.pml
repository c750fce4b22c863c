/* How far reads go: daemon/lease/reach.go, and covered in hosts.go. Hosts with different ids join,
 * at any time and in any order, leave, or die. Host 1 is live at first, and reads as far as its own
 * record.
 *
 * There is no time: a host may look beyond its highest whenever it is the lowest that seems to
 * live. That a dead host is dead becomes known some time later. There is no headroom: it only saves
 * waiting. A read samples each record separately, in any order; a read that overlaps a write
 * returns the old record, the new one or garbage.
 */
#ifndef HOSTS
#define HOSTS 3
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define ALL ((1 << HOSTS) - 1)

/* A record is a byte: the highest that its host publishes, and its state. */
#define VIRGIN  0
#define JOINING 1
#define LIVE    2
#define LEFT    3
#define record(highest, state) (((highest) << 2) | (state))
#define state(r)   ((r) & 3)
#define shows(r)   ((r) >> 2)
#define GARBAGE 255
#define max(a, b)  ((a) > (b) -> (a) : (b))

byte disk[HOSTS], next[HOSTS];
bit  writing[HOSTS];
bit  dead[HOSTS];            /* its lease and its holders are over, a verdict is durable */
byte highest[HOSTS];         /* Machine.highest */
bit  ready[HOSTS];           /* takes tickets and publishes verdicts */
byte up;                     /* number of hosts that are ready, or need not be */
byte deaths = DEATHS;
byte j, v;                   /* within a step only */

#define COVERED 1
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit covered = 1;

/* Steps of Machine: phase in lease.go. */
#define LOOKING  1
#define CLAIMING 2
#define CONFIRM  3
#define ENTERING 4
#define STAYS    5
#define LEAVING  6
#define OVER     7

inline begin_read(next_step, to) {
	step = next_step;
	extent = to;
	mask = 0; top = 0; waits = 0; lowest = 1
}

inline write(next_step, s) {
	step = next_step;
	next[i] = record((s == LEFT && !ready[i] -> 0 : proven), s);
	writing[i] = 1;
	mask = 0; extent = 0; top = 0; waits = 0; lowest = 0;
	printf("@%d writes %d\n", i + 1, next[i])
}

inline becomes_ready() {
	printf("@%d READY\n", i + 1);
	ready[i] = 1; up++;
	j = 0;
	do
	:: j < HOSTS ->
		covered = unasked(COVERED) !ready[j] || highest[j] >= i + 1 && highest[i] >= j + 1;
		assert(covered);
		j++
	:: else -> break
	od;
	j = 0
}

/* judge processes host j's record v: find in reach.go, covered in hosts.go. */
inline judge() {
	top = (v == GARBAGE || state(v) != VIRGIN -> max(top, j + 1) : top);
#ifndef UNHEEDED             /* ignores what others have found */
	top = (v != GARBAGE && step == STAYS && state(v) == LIVE -> max(top, shows(v)) : top);
#endif
	lowest = (j < i && v != GARBAGE && state(v) == LIVE && !dead[j] -> 0 : lowest);
	waits = waits | (v == GARBAGE);
#ifndef COVER_SOON           /* does not wait for joining records */
	waits = waits | (v != GARBAGE && state(v) == JOINING);
#endif
	waits = waits | (v != GARBAGE && (state(v) == LIVE || state(v) == LEFT) && shows(v) < i + 1 && !dead[j])
}

#ifdef EARLY_COVER           /* ignores reads after the own record was written */
#define raises (step == LOOKING)
#else
#define raises true
#endif
#ifdef AT_ONCE               /* ignores highest: every live host takes tickets */
#define all_cover true
#else
#define all_cover (!waits)
#endif
#ifdef NO_SWEEP              /* no host looks for hosts beyond */
#define sweeps false
#else
#define sweeps lowest
#endif

proctype host(byte i) {
	byte step = LOOKING, mask, extent, top, proven;
	bit waits, lowest;
	bit soon;                /* covered by the read before the write of live */

	if
	:: i == 0 -> d_step { proven = 1; begin_read(STAYS, 1) }
	:: else -> begin_read(LOOKING, HOSTS)
	fi;
	do
	:: atomic { (step == LOOKING || step == CONFIRM || step == STAYS) && !writing[i] ->
		if
		:: !(mask & 1) -> j = 0
		:: !(mask & 2) && extent > 1 -> j = 1
		:: !(mask & 4) && extent > 2 -> j = 2
#if HOSTS > 3
		:: !(mask & 8) && extent > 3 -> j = 3
#endif
		fi;
		if
		:: v = disk[j]
		:: writing[j] && j != i -> v = next[j]
		:: writing[j] && j != i -> v = GARBAGE
		fi;
		d_step {
			printf("@%d reads %d %d\n", i + 1, j + 1, v);
			if
			:: j != i -> judge()
			:: else
			fi;
			mask = mask | (1 << j);
			j = 0; v = 0;
			if
			:: mask != (1 << extent) - 1
			:: else -> /* event.go, TableRead */
				if
				:: step == LOOKING -> proven = max(i + 1, top)
				:: step != LOOKING && raises -> proven = max(proven, top)
				:: else
				fi;
#ifndef NOT_RAISED           /* RAISED: reads cover it before it is published */
				highest[i] = max(highest[i], proven);
#endif
				if
				:: step == LOOKING -> write(CLAIMING, JOINING)
				:: step == CONFIRM -> soon = all_cover; write(ENTERING, LIVE)
				:: step == STAYS ->
					if
					:: !ready[i] && all_cover -> becomes_ready()
					:: else
					fi;
					if
					:: proven > shows(disk[i]) -> write(STAYS, LIVE)
					:: else -> begin_read(STAYS, (sweeps -> HOSTS : highest[i]))
					fi
				fi
			fi
		}
	}
	:: d_step { writing[i] ->
		disk[i] = next[i]; next[i] = 0; writing[i] = 0;
		printf("@%d landed\n", i + 1);
		highest[i] = max(highest[i], proven);
		if
		:: step == CLAIMING -> begin_read(CONFIRM, HOSTS)
		:: step == ENTERING ->
			if
			:: soon -> becomes_ready()
			:: else
			fi;
			soon = 0;
			begin_read(STAYS, highest[i])
		:: step == STAYS -> begin_read(STAYS, highest[i])
		:: step == LEAVING -> step = OVER
		fi
	}
#ifdef LEAVES
	:: d_step { step == STAYS && !writing[i] && i > 0 -> /* leave.go */
		up = (ready[i] -> up : up + 1);
		write(LEAVING, LEFT);
		ready[i] = 0
	}
#endif
#if DEATHS > 0
	:: d_step { step == STAYS && !writing[i] && deaths > 0 ->
		deaths--;
		printf("@%d dies\n", i + 1);
		up = (ready[i] -> up : up + 1);
		ready[i] = 0; step = OVER; mask = 0; top = 0; waits = 0; lowest = 0
	}
#endif
	:: step == OVER -> break
	od;
	dead[i] = 1
}

init {
	d_step { disk[0] = record(1, LIVE); highest[0] = 1 };
	atomic {
		run host(0); run host(1); run host(2)
#if HOSTS > 3
		; run host(3)
#endif
	}
}

#ifdef PROGRESS
ltl progress { <> (up == HOSTS) }
#endif
