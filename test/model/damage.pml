/* Unreadable host records: the rules ABANDONED and OWN-READABLE of daemon/lease.
 *
 * Host 1 owns an id. It keeps its lease, takes a lock, pauses, crashes, and comes back as another
 * incarnation. Its record becomes bad at any time, stays bad whatever is written, and recovers at
 * any time, also at a write that repairs it. Host 2 observes the record. An unbroken span of
 * unreadable reads shows it that no incarnation of the id is live. It then treats all slots of that
 * id as void, and takes the same lock. With -DVERDICTS it instead publishes the death of the
 * incarnation that it read last. With -DCOVER it joins with another id, which host 1 does not read
 * at first, and treats the unreadable record as one that covers it.
 *
 * Every read is of single records, in any order, of regular registers: a read that overlaps a write
 * returns the old record, the new one, or garbage. Reads, writes and processes take any time. Time
 * passes in units.
 */
#if !defined(COVER) && !defined(VERDICTS)
#define LOCKS
#endif
#ifndef RENEWALS
#define RENEWALS 1         /* of each incarnation */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef INCARNATIONS
#define INCARNATIONS 2
#endif
#ifndef DAMAGES
#define DAMAGES 1
#endif

/* Times, in units. Incarnation 1 has a watchdog. Incarnations 0 and 2 have none. */
#define d 1                           /* the budget of an IO */
#ifndef L
#define L 2
#endif
#define M 1
#define watchdog(x) ((x) == 1)
#define longest 1
#ifdef SPAN_EARLY                     /* does not wait for the own record */
#define unseen 0
#else
#define unseen (d + 1)
#endif
#define over(x) (L + M + watchdog(x)) /* when the holders of a lease that began at 0 are gone */
#define dead (L + M + longest)
#define most (d + dead)
#if defined(NO_WATCHDOG)              /* the span is measured without the watchdog */
#define span (d + L + M)
#elif defined(KNOWN_WATCHDOG)         /* with the watchdog of the incarnation read last */
#define span (d + L + M + watchdog(incarnation(seen)))
#elif defined(NO_MARGIN)              /* without the margin */
#define span (d + L + longest)
#elif defined(NO_BUDGET)              /* without the time from the owner's read to its write */
#define span dead
#else
#define span most
#endif

/* A record is a byte: the incarnation, whether it covers host 2, and its sequence; 0 is joining. */
#define record(inc, seq) (((inc) << 3) | (covers << 2) | (seq))
#define incarnation(r)   ((r) >> 3)
#define covering(r)      (((r) >> 2) & 1)
#define sequence(r)      ((r) & 3)
#define GARBAGE 255

#define NO    0
#define ASKED 1
#define DONE  2

/* The disk: host 1's record and slot (the incarnation that has it active, or 0), host 2's slot and
 * verdicts. */
byte disk = (1 << 3) | 1;
bit  bad;                  /* the record is unreadable, whatever is written */
byte damages = DAMAGES;
byte slot;
bit  taken;
byte verdict;              /* on incarnations, a bit each */
bit  joined;               /* COVER: host 2's record exists */

/* Writes of a crashed process, which may land. */
byte ghost, slotghost;     /* of the record; of the slot, 1 + its content */

/* Host 1. */
byte inc = 1;
bit  up = 1;               /* between Joined and Lost, with a process */
byte joins;                /* 1 writing joining, 2 durable, 3 writing live */
bit  unclean;
bit  covers;               /* its reads cover host 2 */
byte seq = 1;
byte writing, next;        /* of the record */
bit  proven;               /* the write follows a read that showed the record readable */
bit  candidate;            /* a repairing write has returned: its term begins when a read shows the record readable */
byte submitted;            /* since the term would begin */
byte reading, view;        /* of the own record */
bit  met, sampled;         /* COVER: whether the read found host 2's record, and sampled it */
byte readage;              /* since the read was requested */
byte slotwriting, slotnext;
byte lock;                 /* 0, 1 claim, 2 look, 3 looked, 4 hold, 5 release */
bit  found;
byte lease[3];             /* since t0, of each incarnation */
bit  holds[3];
byte stood;                /* how long the next incarnation has seen the record unchanged, readable or not */
byte crashes = CRASHES;

/* Host 2. */
byte seen;                 /* the record as last read: at first incarnation 0, which is over */
byte since;                /* since when it reads that */
bit  blind;                /* the record was unreadable in every read of the span */
byte blindfor;             /* since the first of these returned */
bit  unbroken;             /* the record has been unreadable since the last of these: the assumption */
bit  gone, settled;
bit  inside;
byte vwriting, vnext, awriting;
bit  anext;
byte stands;               /* COVER: since its own record is known to exist */
bit  ready;

#define EXCLUSION 1
#define DEAD      2
#define SINGLE    3
#define COVERED   4
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit exclusion = 1, dead_only = 1, single = 1, covered = 1;

#define may_write (up && lease[inc] < L)
#define holding(x) (holds[x] && lease[x] < over(x))
#define condemned (verdict & (1 << inc))
#define grow(counter, limit, counts) counter = ((counts) && counter < (limit) -> counter + 1 : counter)

inline land(r) {
	disk = r; stood = 0;
	unbroken = unbroken && bad
}

proctype clock() {
	do
	:: d_step {
		printf("@0 tick\n");
		grow(lease[1], most, true); grow(lease[2], most, true);
		holds[1] = holding(1); holds[2] = holding(2);
		grow(submitted, L, writing || candidate);
		grow(readage, L, reading || joins == 3);
		grow(stood, most, !up && !joins);
		grow(since, most, true);
		grow(blindfor, most, blind);
		grow(stands, 1 + unseen, stands)
	}
	:: d_step { ghost -> land(ghost); printf("@1 landslate %d\n", ghost); ghost = 0 }
	:: d_step { slotghost -> slot = slotghost - 1; printf("@1 slotlandslate %d\n", slot); slotghost = 0 }
	:: d_step { damages > 0 && !bad -> damages--; bad = 1; stood = 0; printf("@1 GOESBAD\n") }
	:: d_step { bad -> bad = 0; unbroken = 0; stood = 0; printf("@1 RECOVERS\n") }
	od
}

inline write(r) {
	next = r; writing = ASKED; candidate = 0;
	printf("@1 writes %d\n", r)
}

inline write_slot(s) {
	slotnext = s; slotwriting = ASKED;
	printf("@1 slotwrites %d\n", s)
}

inline lost() {
	up = 0; lock = 0; found = 0; joins = 0; stood = 0; candidate = 0; submitted = (writing -> submitted : 0);
	reading = NO; view = 0; readage = 0; met = 0; sampled = 0
}

/* returned processes a read of the own record: keep in renew.go, confirm in claim.go. */
inline returned() {
	covers = covers | met;
	if
	:: joins == 2 && view != GARBAGE && (incarnation(view) != inc || condemned) -> joins = 0; inc = INCARNATIONS; unclean = 1; printf("@1 refused\n")
	:: joins == 2 && view != GARBAGE && incarnation(view) == inc && !condemned ->
		joins = 3; seq = 1; proven = 1; submitted = 0; write(record(inc, 1))
	:: joins == 2 && view == GARBAGE
	:: !joins && view != GARBAGE ->
		if
#ifdef REVIVE              /* a read after the end of the lease renews it */
		:: candidate ->
#else
		:: candidate && lease[inc] < L -> /* FINAL */
#endif
			lease[inc] = submitted; candidate = 0; submitted = 0;
			printf("@1 renewed\n")
		:: else
		fi;
		if
		:: seq <= RENEWALS && may_write ->
			seq++; proven = 1;
#ifdef READ_LATE           /* the term runs from its write, even after a slow read */
			submitted = 0;
#else
			submitted = (readage > d -> readage - d : 0);
#endif
			write(record(inc, seq))
		:: else
		fi
	:: !joins && view == GARBAGE ->
		if
		:: seq <= RENEWALS && may_write ->
			seq++; submitted = 0;
#ifdef NO_OWN_READABLE     /* a term starts even if the own record was unreadable */
			proven = 1;
#else
			proven = 0;
#endif
			write(record(inc, seq))
		:: else
		fi
	fi;
	reading = NO; view = 0; readage = (joins == 3 -> readage : 0); met = 0; sampled = 0
}

proctype host() {
	do
	:: d_step { reading == NO && writing == NO && (may_write && (candidate || seq <= RENEWALS) || joins == 2) ->
		reading = ASKED; readage = 0
	}
	:: atomic { reading && view == 0 ->
		if
		:: bad -> view = GARBAGE
		:: else -> view = disk
		fi;
		printf("@1 reads %d\n", view)
	}
#ifdef COVER
	:: d_step { reading && !sampled -> met = joined; sampled = 1; printf("@1 finds host 2: %d\n", met) }
	:: d_step { reading && view && sampled -> returned() }
#else
	:: d_step { reading && view -> returned() }
#endif
	:: d_step { writing == ASKED -> land(next); writing = DONE; printf("@1 lands %d\n", disk) }
	:: d_step { writing == DONE ->
		writing = NO; next = 0;
		printf("@1 returned\n");
		if
		:: up && lease[inc] < L && proven -> lease[inc] = submitted; submitted = 0; printf("@1 renewed\n")
		:: up && lease[inc] < L && !proven -> candidate = 1
		:: joins == 1 -> joins = 2
		:: joins == 3 && readage <= d ->
			joins = 0; readage = 0; up = 1; unclean = 0;
			lease[inc] = submitted; submitted = 0;
			printf("@1 ISLIVE %d\n", inc);
			single = unasked(SINGLE) lease[inc - 1] >= L && !holding(inc - 1);
			assert(single)
		:: joins == 3 && readage > d -> joins = 0; readage = 0; unclean = 1; submitted = 0
		:: !joins && !(up && lease[inc] < L) -> unclean = 1; submitted = 0
		fi
	}
	:: d_step { up && lease[inc] >= L ->
		printf("@1 isover\n");
		unclean = unclean | (writing || candidate);
		lost()
	}

#ifdef COVER
	:: d_step { may_write && ready && !covers -> /* it takes a ticket */
		covered = unasked(COVERED) false;
		assert(covered)
	}
#endif
#ifdef LOCKS
	:: d_step { may_write && lock == 0 && slotwriting == NO && !holds[inc] && slotghost == 0 -> write_slot(inc); lock = 1 }
	:: d_step { slotwriting == ASKED ->
		slot = slotnext; slotwriting = NO; slotnext = 0;
		printf("@1 slotlands %d\n", slot);
		lock = (lock == 1 -> 2 : 0)
	}
	:: atomic { lock == 2 ->
		if
		:: found = taken
		:: awriting == ASKED -> found = anext
		fi;
		lock = 3
	}
	:: d_step { lock == 3 && !found && may_write ->
		printf("@1 ENTERS\n");
		lock = 4;
		exclusion = unasked(EXCLUSION) !inside && !holding(3 - inc);
		assert(exclusion);
		holds[inc] = 1
	}
	:: d_step { (lock == 4 || lock == 3 && found) && slotwriting == NO && may_write ->
		printf("@1 leaves\n");
		holds[inc] = 0; found = 0;
		write_slot(0); lock = 5
	}
#endif
#if CRASHES > 0
	:: d_step { crashes > 0 && (up || joins) && ghost == 0 && slotghost == 0 ->
		crashes--;
		printf("@1 crashes\n");
		ghost = (writing == ASKED -> next : 0);
		slotghost = (slotwriting == ASKED -> 1 + slotnext : 0);
		unclean = 1; writing = NO; next = 0; submitted = 0; slotwriting = NO; slotnext = 0;
		lost()
	}
#endif
	/* Coming back: after a clean end, a verdict, or a record that did not change, or was bad, for the span. */
	:: d_step { !up && !joins && writing == NO && slotwriting == NO && inc < INCARNATIONS && ghost == 0 &&
		(!unclean && lease[inc] >= L && !holding(inc) || condemned || stood >= (bad -> most : dead)) ->
		inc++; joins = 1; unclean = 0; stood = 0; covers = 0; seq = 0;
		write(record(inc, 0))
	}
	od
}

#define FOUND 3

/* judge publishes the death of the incarnation read last. */
inline judge(silent) {
#ifdef VERDICTS
	if
	:: silent && vwriting == NO && !(verdict & (1 << incarnation(seen))) && sequence(seen) > 0 ->
		vnext = 1 << incarnation(seen); vwriting = ASKED;
		printf("@2 verdict %d\n", incarnation(seen))
	:: else
	fi
#else
	skip
#endif
}

/* table_read processes a read of host 1's record by host 2. */
inline table_read() {
	if
	:: record1 == GARBAGE ->
		if
		:: !blind -> blind = 1; blindfor = 0; blindthen = 0
		:: blind && broke -> blindfor = 0; blindthen = 0
		:: else
		fi;
#ifdef SINCE_SEEN          /* an unreadable read counts as the last readable one */
		judge(stoodthen)
#else
		judge(blindthen)
#endif
	:: record1 != GARBAGE ->
#ifndef NO_BREAK           /* a single readable read does not break the span */
		blind = 0; blindfor = 0;
#endif
		blindthen = 0;
		if
		:: incarnation(record1) != incarnation(seen) -> gone = 0; settled = 0; since = 0
		:: incarnation(record1) == incarnation(seen) && record1 != seen -> settled = settled && since < L && record1 > seen; since = 0
		:: record1 == seen -> settled = settled | stoodthen; judge(stoodthen)
		fi;
		seen = record1;
		gone = gone | ((verdict >> incarnation(seen)) & 1)
	fi
}

proctype other() {
	bit  asks;              /* reads host 1's record */
	byte record1;           /* the sample, judged immediately */
	bit  stoodthen;         /* it had not changed for long enough when the read was requested */
	bit  blindthen;         /* the record had been unreadable for long enough then */
	bit  fresh;             /* it was requested after the slot was read */
	bit  standthen;         /* COVER: the own record had existed for long enough then */
	bit  torn, broke;       /* the last sample was unreadable; the record was readable after it */
	byte step;              /* of the lock: 0, 1 claim, 2 look, 3 an active slot was found, 4 judged, 5 hold, 6 release */
	byte whose;
	bit  way;

	do
	:: d_step { !asks && !ready ->
		asks = 1; stoodthen = (since >= dead); blindthen = (blind && blindfor >= span); fresh = (step == FOUND)
#ifdef COVER
		; standthen = (stands > unseen)
#endif
	}
	:: atomic { asks ->
		if
		:: !bad -> record1 = disk
		:: !bad && writing == ASKED -> record1 = next
		:: !bad && ghost -> record1 = ghost
		:: bad || writing == ASKED || ghost -> record1 = GARBAGE
		fi;
		asks = 0;
#ifndef FLICKER            /* assumed: a record that two consecutive reads find unreadable was so in between */
		broke = (record1 == GARBAGE && torn && !unbroken);
#endif
		torn = (record1 == GARBAGE);
		unbroken = torn;
		printf("@2 reads %d\n", record1);
		table_read();
#ifdef COVER
		ready = stands && (blindthen && standthen || record1 != GARBAGE && (covering(record1) && sequence(record1) > 0 || gone && settled));
#endif
#ifdef LOCKS
		if
		:: fresh && step == FOUND && record1 == GARBAGE && !blindthen
		:: fresh && step == FOUND && (record1 != GARBAGE || blindthen) ->
			if
			:: blindthen -> skip
			:: !blindthen && whose == GARBAGE -> way = way | !(gone && settled)
			:: !blindthen && whose != GARBAGE && whose == incarnation(seen) -> way = way | !gone
			:: !blindthen && whose != GARBAGE && whose != incarnation(seen) -> way = way | !settled
			fi;
			step = 4; whose = 0
		:: else
		fi;
#endif
		fresh = 0; record1 = 0; stoodthen = 0; blindthen = 0; standthen = 0; broke = 0
	}
#ifdef VERDICTS
	:: d_step { vwriting == ASKED ->
		verdict = verdict | vnext; vwriting = NO; vnext = 0;
		printf("@2 published %d\n", verdict / 2);
		dead_only = unasked(DEAD) !((verdict & 2) && lease[1] < over(1)) && !((verdict & 4) && lease[2] < over(2));
		assert(dead_only);
		gone = gone | ((verdict >> incarnation(seen)) & 1)
	}
#endif
#ifdef COVER
	:: d_step { !joined && awriting == NO -> awriting = ASKED }
	:: d_step { awriting == ASKED && !joined -> joined = 1; printf("@2 joining lands\n") }
	:: d_step { awriting == ASKED && joined ->
		awriting = DONE; stands = 1;
		printf("@2 stands\n")
	}
#endif
#ifdef LOCKS
	:: d_step { step == 0 -> step = 1; anext = 1; awriting = ASKED; printf("@2 slotwrites 1\n") }
	:: d_step { awriting == ASKED ->
		taken = anext; awriting = NO; anext = 0;
		printf("@2 slotlands %d\n", taken);
		step = (step == 1 -> 2 : 0); way = 0
	}
	:: atomic { step == 2 ->
		if
		:: whose = slot
		:: slotwriting == ASKED -> whose = slotnext
		:: slotghost -> whose = slotghost - 1
		:: slotwriting == ASKED || slotghost -> whose = GARBAGE
		fi;
		printf("@2 slotreads %d\n", whose);
		step = (whose -> FOUND : 4)
	}
	:: d_step { step == 4 && !way ->
		printf("@2 ENTERS\n");
		exclusion = unasked(EXCLUSION) !holding(1) && !holding(2);
		assert(exclusion);
		inside = 1; step = 5
	}
	:: d_step { step == 4 && way || step == 5 ->
		inside = 0; step = 6; way = 0;
		anext = 0; awriting = ASKED;
		printf("@2 slotwrites 0\n")
	}
#endif
	od
}

init {
	d_step { lease[2] = most; settled = 1 };
	atomic { run clock(); run host(); run other() }
}
