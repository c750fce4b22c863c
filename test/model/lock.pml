/* The lock protocol between live hosts: bakery/acquire.go, survey.go, hold.go and events.go.
 *
 * A slot is a regular register: a write takes two steps, and a read in between returns the old
 * slot, the new one or garbage. A read samples each slot separately, in any order. All that a host
 * does between two IOs is one step, as in Machine, where it is one event.
 *
 * Size: HOSTS, ROUNDS (attempts of each host), PERMITS. Options: SHARED (modes), CHANGES (an
 * upgrade or downgrade per hold), SETTLES (a hold), CANCELS (at any step), CLOCK (numbers may come
 * from a clock that is ahead of all). PROGRESS checks that every host is served under weak
 * fairness. The switches that the file `mutations` lists leave out rules.
 */
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef PERMITS
#define PERMITS 1
#endif

#define ALL        ((1 << HOSTS) - 1)
#define MAXNUMBER  30

/* A slot is one byte: number, mode and phase in one write (TICKET-FIRST). Its host is its index. */
#define IDLE       0
#define CHOOSING   1
#define WAITING    2
#define HELD       3
#define EXCLUSIVE  0
#define SHAREDMODE 1
#define slot(n, m, p)  (((n) << 3) | ((m) << 2) | (p))
#define phase(s)   ((s) & 3)
#define mode(s)    (((s) >> 2) & 1)
#define number(s)  ((s) >> 3)
#define UNREADABLE 255
#define max(a, b)  ((a) > (b) -> (a) : (b))

/* Lamport's pairs: is host j's slot s before host i's slot t? */
#if defined(TIES_LATER)      /* with equal numbers neither is ahead */
#define before(s, j, t, i) (number(s) < number(t))
#elif defined(TIES_EARLIER)  /* with equal numbers each is ahead */
#define before(s, j, t, i) (number(s) <= number(t))
#else
#define before(s, j, t, i) (number(s) < number(t) || number(s) == number(t) && (j) < (i))
#endif

/* tally.admits in survey.go. */
#ifdef MODES_TOGETHER        /* "fewer than k in conflict", counted over both modes */
#define admits(m, ex, sh) ((ex) + ((m) == EXCLUSIVE -> (sh) : 0) < PERMITS)
#else
#define admits(m, ex, sh) ((m) == EXCLUSIVE -> (sh) == 0 && (ex) < PERMITS : (ex) == 0)
#endif
#define allowed(m, ex, sh) ((m) == EXCLUSIVE -> (sh) == 0 && (ex) < PERMITS : (ex) == 0)

/* The disk. */
byte now[HOSTS];     /* content */
byte next[HOSTS];    /* content of the write in flight */
bit  writing[HOSTS];
#ifdef REWRITE
byte stray[HOSTS];   /* a write that the host does not wait for; 0: none */
#endif

/* State of the properties. */
#define OUT 0
#define IN_SHARED 1
#define IN_EXCLUSIVE 2
byte inside[HOSTS];
byte asks[HOSTS];    /* while it tries: 1 + mode */
byte doored;         /* hosts that finished their doorway, a bit each */
byte earlier[HOSTS]; /* the same when this attempt began */
byte granted;        /* the highest token of an exclusive grant */
byte over;           /* the same of grants that have ended */
byte floor[HOSTS];   /* what `over` was when this attempt began */
byte served;         /* number of hosts that are done */
#define token(s, i) (number(s) * HOSTS + (i))

/* The properties by name, asserted where they may be broken. -DONLY=ORDER checks only that one. */
#define EXCLUSION  1
#define ORDER      2
#define OVERTAKING 3
#define TOKENS     4
#define ONEWRITE   5
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit exclusion = 1, order = 1, overtaking = 1, tokens = 1, onewrite = 1;

byte v, j, ex, sh; /* within a step only */

/* A trail has lines "@host what"; `run` prints them in columns. */


/* begin_write starts a write of host i's slot; land ends it. */
inline begin_write(s) {
#ifndef REWRITE
	onewrite = unasked(ONEWRITE) !writing[i];
	assert(onewrite);
#endif
	assert(number(s) <= MAXNUMBER);
	next[i] = s;
	writing[i] = 1;
	printf("@%d writes %d\n", i + 1, s)
}

inline land() {
	printf("@%d landed\n", i + 1);
	now[i] = next[i];
	next[i] = 0;
	writing[i] = 0
}

/* sample reads host j's slot into v. */
inline sample() {
	if
	:: v = now[j]
	:: writing[j] -> v = next[j]
	:: writing[j] -> v = UNREADABLE
#ifdef REWRITE
	:: stray[j] -> v = (phase(stray[j]) == IDLE -> slot(number(stray[j]), 0, IDLE) : stray[j])
#endif
	fi
}

/* count_holders counts the holders other than i, in ex and sh. */
inline count_holders() {
	ex = 0; sh = 0; j = 0;
	do
	:: j < HOSTS ->
		ex = ex + (j != i && inside[j] == IN_EXCLUSIVE);
		sh = sh + (j != i && inside[j] == IN_SHARED);
		j++
	:: else -> break
	od;
	j = 0
}

/* begins records which doorways are done when host i's begins. */
inline begins(m) {
	asks[i] = 1 + m;
	floor[i] = over;
	j = 0;
	do
	:: j < HOSTS ->
		earlier[i] = earlier[i] | ((j != i && asks[j] && (doored & (1 << j)) && !inside[j]) -> (1 << j) : 0);
		j++
	:: else -> break
	od;
	j = 0
}

/* enters checks a grant, or the end of a change of mode. */
inline enters(s, first) {
	printf("@%d ENTERS\n", i + 1);
	count_holders();
	exclusion = unasked(EXCLUSION) allowed(mode(s), ex, sh);
	assert(exclusion);
	if
	:: first ->
		j = 0;
		do
		:: j < HOSTS ->
			if
			:: (earlier[i] & (1 << j)) && asks[j] && !inside[j] ->
				overtaking = unasked(OVERTAKING) !(mode(s) == SHAREDMODE && asks[j] == 1 + EXCLUSIVE);
				assert(overtaking);
				ex = ex + (asks[j] == 1 + EXCLUSIVE);
				sh = sh + (asks[j] == 1 + SHAREDMODE)
			:: else
			fi;
			j++
		:: else -> break
		od;
		j = 0;
		order = unasked(ORDER) allowed(mode(s), ex, sh);
		assert(order);
		earlier[i] = 0;
		doored = doored | (1 << i)
	:: else
	fi;
	if
	:: mode(s) == EXCLUSIVE && inside[i] != IN_EXCLUSIVE ->
#if PERMITS == 1
		tokens = unasked(TOKENS) token(s, i) + 1 > granted || (!first && token(s, i) + 1 == granted);
#else
		tokens = unasked(TOKENS) token(s, i) + 1 > floor[i];
#endif
		assert(tokens);
		granted = max(granted, token(s, i) + 1)
	:: else
	fi;
#if PERMITS == 1
	floor[i] = 0;
#endif
	inside[i] = (mode(s) == EXCLUSIVE -> IN_EXCLUSIVE : IN_SHARED);
	ex = 0; sh = 0
}

/* leaves ends the attempt when its last write begins. */
inline leaves() {
#if PERMITS > 1
	over = (inside[i] == IN_EXCLUSIVE -> max(over, token(mine, i) + 1) : over);
#else
	granted = granted;
#endif
	inside[i] = OUT; asks[i] = 0; earlier[i] = 0; floor[i] = 0;
	doored = doored & ~(1 << i);
	j = 0;
	do
	:: j < HOSTS -> earlier[j] = earlier[j] & ~(1 << i); j++
	:: else -> break
	od;
	j = 0
}

/* count is survey.count: host j's slot v stands before host i's. front is the slot to poll, shown
 * its content. */
inline count() {
	nex = nex + (mode(v) == EXCLUSIVE);
	nsh = nsh + (mode(v) == SHAREDMODE);
	if
	:: !blocked && (mode(v) == EXCLUSIVE || mode(mine) == EXCLUSIVE) &&
		(shown == 0 || phase(shown) == CHOOSING && phase(v) != CHOOSING ||
		phase(v) != CHOOSING && !before(v, j, shown, front)) -> front = j; shown = v
	:: else
	fi
}

/* stands is whether host j's slot v, which is not idle, stands before host i's: in the doorway
 * every slot does. */
#if defined(IGNORE_CHOOSING) /* hosts that are choosing are not waited for */
#define stands(doorway) (doorway || phase(v) != CHOOSING && before(v, j, mine, i))
#elif defined(PASS_WRITERS)  /* a reader does not wait for waiters */
#define stands(doorway) (doorway || before(v, j, mine, i) && \
	!(mode(mine) == SHAREDMODE && mode(v) == EXCLUSIVE && phase(v) == WAITING))
#elif defined(WAIT_CHOOSING) /* Lamport's rule: wait for all that are choosing */
#define stands(doorway) (doorway || phase(v) == CHOOSING || before(v, j, mine, i))
#else                        /* RESERVED: except those that reserved a greater ticket */
#define stands(doorway) (doorway || before(v, j, mine, i))
#endif

/* judge is survey for one slot v of host j. */
inline judge(doorway) {
	if
#if defined(TORN_IDLE)       /* an unreadable slot counts as idle */
	:: v == UNREADABLE
#elif defined(TORN_LOOK)     /* READABLE-LOOK: in the doorway it counts as choosing */
	:: v == UNREADABLE && doorway -> nex++
	:: v == UNREADABLE && !(doorway) -> blocked = 1; front = j; shown = UNREADABLE
#else
	:: v == UNREADABLE -> blocked = 1; front = j; shown = UNREADABLE
#endif
	:: v != UNREADABLE ->
		highest = max(highest, number(v));
		if
		:: phase(v) != IDLE && stands(doorway) -> count()
		:: else
		fi
	fi
}

/* The steps of Machine, in bakery.go. Removal, restart and attach are left out. */
#define REST      0
#define CLAIM     1
#define LOOK      2
#define NUMBER    3
#define WAITS     4
#define ENTERED   5
#define SETTLE    6
#define WITHDRAW  7 /* and release: writing idle */
#define DOWNGRADE 8
#define UPGRADE   9
#define ALONE     10
#define BACK      11

#ifdef CANCELS
#define cancelled true
#else
#define cancelled false
#endif

#if defined(FAST_UNCOMPARED) /* the fast path compares no numbers */
#define fast (admits(mode(mine), nex, nsh) && !blocked)
#elif defined(FAST_EQUAL)    /* an equal number suffices */
#define fast (admits(mode(mine), nex, nsh) && !blocked && number(mine) >= highest)
#else
#define fast (admits(mode(mine), nex, nsh) && !blocked && number(mine) > highest)
#endif

#if defined(NUMBER_RESERVED) /* RESERVED: one above those seen, even if a higher one was reserved */
#define drawn (highest + 1)
#elif defined(NUMBER_LOW)    /* the number of the claim, without the look */
#define drawn number(mine)
#else
#define drawn last
#endif

#define all_polled (PERMITS > 1)
#ifdef CHANGE_BESIDE         /* changes of mode with several permits */
#define changes_mode changes
#else
#define changes_mode (changes && PERMITS == 1)
#endif
#ifdef UPGRADE_BLIND         /* an upgrade does not look */
#define alone true
#else
#define alone (nex + nsh == 0 && !blocked)
#endif

/* fresh begins a read of all slots; its own is not read. */
inline fresh(next_step) {
	step = next_step;
	mask = 1 << i; polls = 0;
	highest = 0; nex = 0; nsh = 0; blocked = 0; front = 0; shown = 0
}

/* calm ends the reading. */
inline calm(next_step) {
	fresh(next_step);
	mask = 0
}

/* poll waits for the slot that is in front: see polling below. */
inline poll() {
	polls = 1;
	mask = 0; highest = 0; nex = 0; nsh = 0; blocked = 0
}

inline to_write(next_step, s) {
	calm(next_step);
	mine = s;
	begin_write(mine)
}

inline to_idle() {
	leaves();
	settles = 0; changes = 0;
#ifdef STAYS_IN_LINE         /* a release does not change the slot */
	to_write(WITHDRAW, mine)
#else
	to_write(WITHDRAW, slot(number(mine), 0, IDLE))
#endif
}

inline to_enter(first) {
	enters(mine, first);
	settles = (first -> 1 : settles); changes = first;
	calm(ENTERED)
}

proctype host(byte i) {
	byte rounds = ROUNDS;
	byte step;
	byte last;              /* the highest number seen */
	byte mine;              /* own slot, written or in flight */
	byte mask;              /* slots that the read in flight has sampled */
	byte highest, nex, nsh; /* results of these */
	bit blocked;
	bit polls;
	byte front, shown;      /* slot to poll, and its last content */
	bit settles, changes;   /* not done yet under this hold */

	do
	:: atomic { step == REST && rounds == 0 -> mine = 0; last = 0; served++; break }

	:: atomic { step == REST && rounds > 0 -> /* acquire.go, claim */
		rounds--;
		last++;
#ifdef CLOCK
		if
		:: true
		:: true -> /* a clock ahead of all */
			j = 0;
			do
			:: j < HOSTS -> last = max(last, max(number(now[j]), number(next[j])) + 1); j++
			:: else -> break
			od;
			j = 0
		fi;
#endif
#ifdef SHARED
		if
		:: mine = slot(last, EXCLUSIVE, CHOOSING)
		:: mine = slot(last, SHAREDMODE, CHOOSING)
		fi;
#else
		mine = slot(last, EXCLUSIVE, CHOOSING);
#endif
		begins(mode(mine));
		begin_write(mine);
#ifdef EARLY_LOOK            /* CLAIM-FIRST: the slots are read while the claim is written */
		fresh(LOOK)
#else
		step = CLAIM
#endif
	}

	:: d_step { writing[i] && step != LOOK -> /* events.go, Written */
		land();
		if
		:: step == CLAIM -> fresh(LOOK)
#ifdef SPLIT_WRITE
		:: step == NUMBER && now[i] != mine -> begin_write(mine)
		:: step == NUMBER && now[i] == mine ->
#else
		:: step == NUMBER ->
#endif
			fresh(WAITS);
			doored = doored | (1 << i)
		:: step == UPGRADE -> fresh(ALONE)
		:: step == SETTLE || step == DOWNGRADE || step == BACK -> step = ENTERED
		:: step == WITHDRAW -> step = REST
		fi
	}

	:: atomic { (step == LOOK || step == WAITS || step == ALONE) && !polls -> /* one slot is read; after the last, judge */
		if
		:: !(mask & 1) -> j = 0
		:: !(mask & 2) -> j = 1
#if HOSTS > 2
		:: !(mask & 4) -> j = 2
#endif
		fi;
		sample();
		d_step {
			printf("@%d reads %d %d\n", i + 1, j + 1, v);
			judge(step != WAITS);
			mask = mask | (1 << j);
			j = 0; v = 0
		};
		if
		:: mask != ALL
		:: mask == ALL && cancelled && step != ALONE -> to_idle()
		:: mask == ALL -> d_step {
#ifdef EARLY_LOOK
			if
			:: writing[i] -> land()
			:: else
			fi;
#endif
			last = (step == ALONE -> last : max(last, highest));
			if
			:: step == LOOK && fast -> to_enter(1)
			:: step == LOOK && !fast && blocked -> poll() /* READABLE-LOOK */
			:: step == LOOK && !fast && !blocked -> /* acquire.go, look: the number */
				last++;
				to_write(NUMBER, slot(drawn, mode(mine), WAITING));
#ifdef SPLIT_WRITE           /* TICKET-FIRST: the flag is cleared in one write, the number follows */
				next[i] = slot(number(now[i]), mode(mine), IDLE)
#endif
			:: step == WAITS && admits(mode(mine), nex, nsh) && !blocked -> to_enter(1)
			:: step == WAITS && !(admits(mode(mine), nex, nsh) && !blocked) -> poll()
			:: step == ALONE && alone -> to_enter(0) /* hold.go, alone */
			:: step == ALONE && !alone -> to_write(BACK, slot(number(mine), SHAREDMODE, HELD))
			fi }
		fi
	}

	:: d_step { polls && (all_polled && shown != UNREADABLE || /* events.go, Polled: the slot changed */
		now[front] != shown || writing[front] || shown == UNREADABLE) -> fresh(step) }
	:: d_step { polls && cancelled -> to_idle() }

#ifdef REWRITE               /* a release that is not awaited: the next claim may be written before it lands */
	:: d_step { step == ENTERED && rounds > 0 && stray[i] == 0 ->
		to_idle();
		stray[i] = next[i];
		next[i] = 0; writing[i] = 0; step = REST
	}
#endif
	:: d_step { step == ENTERED -> to_idle() } /* hold.go */
#ifdef SETTLES
	:: d_step { step == ENTERED && settles -> settles = 0; to_write(SETTLE, slot(number(mine), mode(mine), HELD)) }
#endif
#ifdef CHANGES
	:: d_step { step == ENTERED && changes_mode && mode(mine) == EXCLUSIVE ->
		changes = 0;
		to_write(DOWNGRADE, slot(number(mine), SHAREDMODE, HELD));
		inside[i] = IN_SHARED; /* from here on readers may enter */
		count_holders();
		exclusion = unasked(EXCLUSION) allowed(SHAREDMODE, ex, sh);
		assert(exclusion);
		ex = 0; sh = 0
	}
	:: d_step { step == ENTERED && changes_mode && mode(mine) == SHAREDMODE ->
		changes = 0;
#ifdef UPGRADE_TICKET        /* an upgrade takes a new ticket */
		last++;
		to_write(UPGRADE, slot(last, EXCLUSIVE, CHOOSING))
#else
		to_write(UPGRADE, slot(number(mine), EXCLUSIVE, CHOOSING))
#endif
	}
#endif
	od
}

#ifdef REWRITE
/* strays lands writes that no host waits for, at any time. */
proctype strays() {
end:	do
	:: atomic { stray[0] -> now[0] = slot(number(stray[0]), 0, IDLE); stray[0] = 0 }
	:: atomic { stray[1] -> now[1] = slot(number(stray[1]), 0, IDLE); stray[1] = 0 }
	od
}
#endif

init {
	atomic {
		run host(0);
		run host(1);
#if HOSTS > 2
		run host(2);
#endif
#ifdef REWRITE
		run strays()
#endif
	}
}

#ifdef PROGRESS
ltl progress { <> (served == HOSTS) }
#endif
