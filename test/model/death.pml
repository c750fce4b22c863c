/* Death and coming back: daemon/lease/renew.go, hosts.go, death.go and verdict.go, and which slots
 * count, in bakery/peers.go.
 *
 * Host 1 keeps a lease, takes a lock and may lose it in every way: its writes hang and land late,
 * its process crashes (its holders run until their deadline), and it comes back as another
 * incarnation. Observers 2 (and 3) live: they watch its record, publish verdicts, read each
 * other's, and take the same lock. The order of waiters is in lock.pml. Here a host that finds
 * another slot in its way withdraws, as in a non-blocking request: only the moment when a slot
 * becomes void matters.
 *
 * Every read is of single records, in any order, of regular registers. Reads, writes and processes
 * take any time. Time passes in units, up to the greatest value that is measured.
 */
#ifndef OBSERVERS
#define OBSERVERS 1
#endif
#ifndef RENEWALS
#define RENEWALS 1          /* of each incarnation */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef INCARNATIONS
#define INCARNATIONS 2     /* of host 1 */
#endif

/* Times, in units, as in times.go. */
#define d 0
#define L 2
#define M 1
#define over (L + M)        /* when the holders of a lease that began at 0 are gone: a kill takes M */
#if defined(NO_MARGIN)      /* a host is dead as soon as its lease is over */
#define dead L
#elif defined(JUDGE_EARLY)  /* after half of it */
#define dead (L / 2)
#else
#define dead (L + M)
#endif

/* A record is a byte: incarnation 1 or 2, and its sequence; 0 is joining. */
#define record(inc, seq) (((inc) << 3) | (seq))
#define incarnation(r)   ((r) >> 3)
#define sequence(r)      ((r) & 7)
#define GARBAGE 255

/* The disk: host 1's record and slot (the incarnation that has it active, or 0), the observers'
 * verdicts and slots. */
byte disk = record(1, 1);
byte slot;
byte verdict[OBSERVERS];    /* on incarnations, a bit each */
bit  taken[OBSERVERS];

/* Writes of dead processes, which may land. */
byte ghost, slotghost;      /* of the record; of the slot, 1 + its content */
#ifdef REWRITE
byte early;                 /* a renewal that hung and was given up */
#endif

#define NO    0
#define ASKED 1
#define DONE  2

/* Host 1. */
byte inc = 1;
bit up = 1;                 /* live: between Joined and Lost, with a process */
byte joins;                 /* coming back: 1 writing joining, 2 durable, 3 writing live */
bit unclean;                /* Machine.clean is false: a write failed, hung or was cut off */
byte writing, next;         /* of the record */
byte seq = 1;               /* of the last write */
byte submitted;
byte slotwriting, slotnext;
byte lock;                  /* 0, 1 claim, 2 look, 3 hold, 4 release */
byte looked;                /* observers whose slot was read */
bit  found;                 /* another slot was in its way */
byte lease[3];              /* since t0, of each incarnation */
bit  holds[3];
byte stood;                 /* how long the next incarnation has seen the record unchanged; over: long enough */
byte crashes = CRASHES;

/* Observers. */
byte since[OBSERVERS];      /* since the record was last seen to change */
bit  gone[OBSERVERS], settled[OBSERVERS]; /* of its incarnation: Host in hosts.go */
bit  inside[OBSERVERS];
byte vwriting[OBSERVERS], vnext[OBSERVERS];
byte awriting[OBSERVERS];
bit  anext[OBSERVERS];

#define EXCLUSION 1
#define WORD      2
#define PUBLISHED 3
#define DEAD      4
#define SINGLE    5
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit exclusion = 1, word = 1, published = 1, dead_only = 1, single = 1;

#define since_most (L + M)
#define may_write (up && lease[inc] + d < L) /* LAST-CALL */
#define holding(x) (holds[x] && lease[x] < over)
#define grow(counter, most, counts) counter = ((counts) && counter < (most) -> counter + 1 : counter)

/* Assumed in PROTOCOL.md: a later incarnation writes its slots only when no write of an earlier one
 * can land. Assumed here: it joins only when no write of the record can land. */
#ifdef SLOT_GHOST           /* without the first */
#define no_slot_ghost true
#else
#define no_slot_ghost (slotghost == 0)
#endif
#ifdef RECORD_GHOST         /* without the second */
#define no_ghost true
#else
#define no_ghost (ghost == 0)
#endif
#define condemned (verdict[0] & (1 << inc)) /* claim.go, confirm: it does not go live under a verdict on itself */
#ifdef JUDGE_JOINING        /* a joining record that stands still is declared dead */
#define suspect(r) true
#else
#define suspect(r) (sequence(r) > 0)
#endif
#if OBSERVERS > 1
#define other_says(x) ((verdict[1 - o] & (1 << x)) || vwriting[1 - o] == ASKED && (vnext[1 - o] & (1 << x)))
#else
#define other_says(x) false
#endif

proctype clock() {
	byte o;
	do
	:: d_step {
		printf("@0 tick\n");
		grow(lease[1], over, true); grow(lease[2], over, true);
		holds[1] = (lease[1] == over -> 0 : holds[1]); holds[2] = (lease[2] == over -> 0 : holds[2]);
		grow(submitted, L, writing);
		grow(stood, over, !up && !joins);
		o = 0;
		do
		:: o < OBSERVERS -> grow(since[o], since_most, !gone[o]); o++
		:: else -> break
		od;
		o = 0
	}
	:: d_step { ghost -> disk = ghost; printf("@1 landslate %d\n", ghost); ghost = 0; stood = 0 }
	:: d_step { slotghost -> slot = slotghost - 1; printf("@1 slotlandslate %d\n", slot); slotghost = 0 }
#ifdef REWRITE
	:: d_step { early -> disk = early; printf("@1 landslate %d\n", early); early = 0; stood = 0 }
#endif
	od
}

inline write(r) {
	next = r; writing = ASKED; submitted = 0;
	printf("@1 writes %d\n", r)
}

inline write_slot(s) {
	slotnext = s; slotwriting = ASKED;
	printf("@1 slotwrites %d\n", s)
}

/* lost ends the process of host 1; its holders are killed by `over`. */
inline lost() {
	up = 0; lock = 0; looked = 0; found = 0; joins = 0; stood = 0
}

proctype host() {
	byte o;
	do
	/* renew.go */
	:: d_step { up && writing == NO && may_write && seq <= RENEWALS -> seq++; write(record(inc, seq)) }
#ifdef REWRITE              /* the record is rewritten while a write of it hangs */
	:: d_step { up && writing == ASKED && may_write && early == 0 && seq <= RENEWALS -> early = next; seq++; write(record(inc, seq)) }
#endif
	:: d_step { writing == ASKED -> disk = next; writing = DONE; stood = 0; printf("@1 lands %d\n", disk) }
	:: d_step { writing == DONE ->
		writing = NO; next = 0;
		printf("@1 returned\n");
		if
		:: up && lease[inc] < L -> /* FINAL */
#ifdef LATE_T0              /* the lease runs from the acknowledgement */
			lease[inc] = 0
#else
			lease[inc] = submitted /* T0-FIRST */
#endif
		:: joins == 1 -> joins = 2
		:: joins == 3 && submitted < L -> /* claim.go, enter */
			joins = 0; up = 1; unclean = 0;
			lease[inc] = submitted;
			printf("@1 ISLIVE %d\n", inc);
			single = unasked(SINGLE) lease[inc - 1] >= L && !holding(inc - 1);
			assert(single)
		:: joins == 3 && submitted >= L -> joins = 0; unclean = 1
		:: !joins && !(up && lease[inc] < L) -> unclean = 1
		fi;
		submitted = 0
	}
	:: d_step { up && lease[inc] >= L -> /* lease.go, lose */
		printf("@1 isover\n");
		unclean = (writing -> 1 : unclean);
		lost()
	}

	/* The lock. */
	:: d_step { up && lock == 0 && slotwriting == NO && may_write && !holds[inc] && no_slot_ghost -> write_slot(inc); lock = 1 }
	:: d_step { slotwriting == ASKED ->
		slot = slotnext; slotwriting = NO; slotnext = 0;
		printf("@1 slotlands %d\n", slot);
		if
		:: lock == 1 -> lock = 2; looked = 0; found = 0
		:: lock == 4 -> lock = 0
		:: else
		fi
	}
	:: atomic { lock == 2 && looked < OBSERVERS -> /* in this order; the observers sample in any order */
		if
		:: found = found | taken[looked]
		:: awriting[looked] == ASKED -> found = found | anext[looked] /* or unreadable: then it looks again */
		fi;
		looked++
	}
#ifdef GRANT_LATE           /* granted even after the end of the lease */
	:: d_step { lock == 2 && looked == OBSERVERS && !found ->
		lease[inc] = (lease[inc] >= L -> 0 : lease[inc]);
#else
	:: d_step { lock == 2 && looked == OBSERVERS && !found && may_write ->
#endif
		printf("@1 ENTERS\n");
		lock = 3; looked = 0;
		o = 0;
		do
		:: o < OBSERVERS -> exclusion = exclusion && (unasked(EXCLUSION) !inside[o]); assert(exclusion); o++
		:: else -> break
		od;
		o = 0;
		exclusion = unasked(EXCLUSION) !holding(3 - inc);
		assert(exclusion);
		holds[inc] = 1
	}
	:: d_step { (lock == 3 || lock == 2 && looked == OBSERVERS && found) && slotwriting == NO && may_write ->
		printf("@1 leaves\n");
		holds[inc] = 0; looked = 0; found = 0;
		write_slot(0); lock = 4
	}

	/* A crash: writes in flight may land, at any time. */
	:: atomic { crashes > 0 && (up || joins) && ghost == 0 && slotghost == 0 ->
		crashes--;
		printf("@1 crashes\n");
		ghost = (writing == ASKED -> next : 0);
		slotghost = (slotwriting == ASKED -> 1 + slotnext : 0);
		unclean = 1; writing = NO; next = 0; submitted = 0; slotwriting = NO; slotnext = 0;
		lost()
	}

	/* Coming back, by the next incarnation: join.go. */
	:: atomic { !up && !joins && writing == NO && slotwriting == NO && inc < INCARNATIONS && no_ghost ->
		if
		:: !unclean && lease[inc] >= L && !holding(inc) -> skip /* ended cleanly, and its processes have ended */
		:: verdict[0] & (1 << inc) -> skip
#if OBSERVERS > 1
		:: verdict[1] & (1 << inc) -> skip
#endif
		:: stood >= over -> skip
#ifdef REBOOTED             /* another boot id is proof of death */
		:: unclean -> skip
#endif
		fi;
		inc++; joins = 1; unclean = 0; stood = 0;
		write(record(inc, 0))
	}
	:: d_step { joins == 2 && writing == NO && (disk != record(inc, 0) || condemned) -> joins = 0; inc = INCARNATIONS; unclean = 1; printf("@1 refused\n") }
	:: d_step { joins == 2 && writing == NO && disk == record(inc, 0) && !condemned -> joins = 3; seq = 1; write(record(inc, 1)) }
	od
}

#define FOUND 3
#if OBSERVERS > 1
#define SAMPLED 7
#else
#define SAMPLED 3
#endif

/* table_read processes a read of the table: hosts.go, verdict.go and death.go. */
inline table_read() {
	d_step {
		reading = 0;
		if
		:: record1 == GARBAGE -> fresh = 0
		:: record1 != GARBAGE ->
			if
			:: incarnation(record1) != incarnation(seen) -> gone[o] = 0; settled[o] = 0; steps = 0; since[o] = 0
			:: incarnation(record1) == incarnation(seen) && record1 != seen ->
				if
				:: since[o] >= L || record1 < seen -> settled[o] = 0; steps = 0
				:: !(since[o] >= L || record1 < seen) && sequence(seen) == 0 -> steps = 0
				:: else -> steps = (steps < 2 -> steps + 1 : 2); settled[o] = settled[o] | (steps >= 2)
				fi;
				since[o] = 0
			:: record1 == seen -> settled[o] = settled[o] | (stoodthen >= 2)
			fi;
			if
			:: record1 == seen && (stoodthen & 1) && !gone[o] && vwriting[o] == NO && suspect(record1) &&
				!(verdict[o] & (1 << incarnation(record1))) ->
				vnext[o] = 1 << incarnation(record1); /* and drops the other's verdict */
				vwriting[o] = ASKED;
				printf("@%d verdict %d\n", o + 2, incarnation(record1))
#ifdef ACT_EARLY            /* a verdict is acted on before it is durable */
				; gone[o] = 1
#endif
			:: else
			fi;
			seen = record1;
			gone[o] = gone[o] | ((heard >> incarnation(seen)) & 1)
		fi;
#ifdef STALE_TABLE          /* any earlier read suffices */
		fresh = (step == FOUND);
#endif
		if
		:: fresh && step == FOUND -> /* peers.go, standing */
			fresh = 0;
			if
			:: whose == GARBAGE -> idle = gone[o] && settled[o]
			:: whose != GARBAGE && whose == incarnation(seen) ->
				idle = gone[o];
				published = unasked(PUBLISHED) !gone[o] || (verdict[o] & (1 << whose)) || other_says(whose) ||
					incarnation(disk) != whose;
				assert(published)
			:: whose != GARBAGE && whose != incarnation(seen) -> idle = settled[o]
			fi;
			way = way | !idle;
			step = 4; whose = 0; idle = 0
		:: else -> fresh = 0
		fi;
		record1 = 0; heard = 0; stoodthen = 0
	}
}

proctype observer(byte o) {
	byte reading;           /* 0, or 1 plus a bit for each sample: 2 the record, 4 the other's verdicts */
	byte record1, heard;    /* samples */
	byte stoodthen;         /* since[o] when the read was requested: 1 dead, 2 settled */
	bit fresh;              /* it was requested after the slot was read */
	byte seen, steps;       /* Host in hosts.go */
	byte step;              /* of the lock: 0, 1 claim, 2 look, 3 an active slot was found, 4 judged, 5 hold, 6 release */
	byte whose;                /* the active slot's incarnation; GARBAGE: unreadable */
	bit way, idle;

	do
	/* A read of the table. */
	:: d_step { reading == 0 -> reading = 1; stoodthen = (since[o] >= dead) + 2 * (since[o] >= L + M); fresh = (step == FOUND) }
	:: atomic { reading && !(reading & 2) ->
		if
		:: record1 = disk
		:: writing == ASKED -> record1 = next
		:: ghost -> record1 = ghost
#ifdef REWRITE
		:: early -> record1 = early
#endif
		:: writing == ASKED || ghost -> record1 = GARBAGE
		fi;
		reading = reading | 2;
		printf("@%d reads %d\n", o + 2, record1);
		if
		:: reading == SAMPLED -> table_read()
		:: else
		fi
	}
#if OBSERVERS > 1
	:: atomic { reading && !(reading & 4) -> /* the other's verdicts */
		if
		:: heard = verdict[1 - o]
		:: vwriting[1 - o] == ASKED -> heard = vnext[1 - o]
		fi;
		reading = reading | 4;
		if
		:: reading == SAMPLED -> table_read()
		:: else
		fi
	}
#endif
	/* Verdicts: verdict.go. */
	:: d_step { vwriting[o] == ASKED ->
		verdict[o] = vnext[o]; vwriting[o] = NO; vnext[o] = 0;
		printf("@%d published %d\n", o + 2, verdict[o] / 2);
		dead_only = unasked(DEAD) !((verdict[o] & 2) && lease[1] < over) && !((verdict[o] & 4) && lease[2] < over);
		assert(dead_only);
		gone[o] = gone[o] | ((verdict[o] >> incarnation(seen)) & 1)
	}

	/* The lock. */
	:: d_step { step == 0 -> step = 1; anext[o] = 1; awriting[o] = ASKED; printf("@%d slotwrites 1\n", o + 2) }
	:: d_step { awriting[o] == ASKED ->
		taken[o] = anext[o]; awriting[o] = NO; anext[o] = 0;
		printf("@%d slotlands %d\n", o + 2, taken[o]);
		step = (step == 1 -> 2 : 0); way = 0
	}
	:: atomic { step == 2 ->
#if OBSERVERS > 1
		if
		:: way = taken[1 - o]
		:: awriting[1 - o] == ASKED -> way = anext[1 - o]
		fi;
#endif
		if
		:: whose = slot
		:: slotwriting == ASKED -> whose = slotnext
		:: slotghost -> whose = slotghost - 1
		:: slotwriting == ASKED || slotghost -> whose = GARBAGE
		fi;
		printf("@%d slotreads %d\n", o + 2, whose);
		step = (whose -> FOUND : 4)
	}
	:: d_step { step == 4 && !way ->
		printf("@%d ENTERS\n", o + 2);
		word = unasked(WORD) !(holds[1] && lease[1] < L) && !(holds[2] && lease[2] < L);
		assert(word);
		exclusion = unasked(EXCLUSION) !holding(1) && !holding(2);
		assert(exclusion);
#if OBSERVERS > 1
		exclusion = unasked(EXCLUSION) !inside[1 - o];
		assert(exclusion);
#endif
		inside[o] = 1;
		step = 5
	}
	:: d_step { step == 4 && way || step == 5 ->
		inside[o] = 0; step = 6; way = 0;
		anext[o] = 0; awriting[o] = ASKED;
		printf("@%d slotwrites 0\n", o + 2)
	}
	od
}

init {
	d_step { lease[2] = over };
	atomic {
		run clock(); run host(); run observer(0)
#if OBSERVERS > 1
		; run observer(1)
#endif
	}
}
