/* How a host id is claimed and kept: daemon/lease/join.go, claim.go and renew.go, for hosts with
 * one id.
 *
 * There is one record, that of the id. Each host claims it, keeps its lease, loses it, and starts
 * again while incarnations are left. All have one machine id (copies of a machine); other hosts are
 * restricted more. Reads, writes and processes take any time; time passes in units, counted for
 * each host from the events that it measures. A read that overlaps a write returns the old record,
 * the new one, or garbage. A write of a crashed process lands at any time, more than once or never;
 * it is not read before. No host is declared dead here: see death.pml.
 *
 * PAST is the record at first: of an incarnation that is over, whose last write may land once more.
 * CRASHES: how many processes may end at any step; their holders run until the end of the lease.
 */
#define HOSTS 2
#ifndef INCARNATIONS
#define INCARNATIONS 2 /* of host 1; host 2 has one */
#endif
#ifndef RENEWALS
#define RENEWALS 1     /* of each incarnation */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif

/* Times, in units: times.go has c <= d = L/20, M = L/5; only their order matters. */
#define c 1
#define d 1
#define L 5
#define M 1
#define shortwait (3 * c)
#define dead      (L + M)
#ifdef LONG_NOT_SO           /* the long claim waits no longer than the short one */
#define longwait shortwait
#else
#define longwait (L + M)
#endif

/* A record is a byte: the incarnation, and its state and sequence in one. */
#define record(inc, seq) (((inc) << 3) | (seq))
#define incarnation(r)   ((r) >> 3)
#define sequence(r)      ((r) & 7)
#define VIRGIN  0
#define JOINING 0            /* 1, 2, ... are live */
#define LEFT    7
#define GARBAGE 255
#define OLD     1            /* the previous incarnation */
#ifndef PAST
#define PAST VIRGIN
#endif

byte disk = PAST;
byte ghost = PAST;           /* a write of a dead process that may land; 0: none */
byte crashes = CRASHES;

/* The steps of Machine: phase in lease.go, with the wait of a claim as a separate phase. */
#define LOOKING  0
#define CLAIMING 1           /* writing joining */
#define WAITING  2
#define CONFIRM  3           /* reading the table */
#define ENTERING 4           /* writing live */
#define LIVE     5
#define OVER     6

#define NO     0
#define ASKED  1             /* of a read or write */
#define DONE   2             /* the read was sampled, the write has landed */

byte phase[HOSTS];
byte reading[HOSTS], writing[HOSTS];
byte view[HOSTS];            /* sample of the read in flight */
byte next[HOSTS];            /* content of the write in flight */
byte own[HOSTS];             /* content of the last write */

/* Times since events, up to their greatest relevant value. */
byte asked[HOSTS];           /* since the last read of a claim was requested */
byte submitted[HOSTS];       /* since the write in flight was submitted */
byte lease[HOSTS];           /* since t0; L: there is no lease */
byte zombie[HOSTS];          /* the same of an earlier process of this host that has crashed */
byte stands[HOSTS];          /* since the record was last seen to change */
byte timer[HOSTS];           /* until the wait of a claim is over */

#define SINGLE   1
#define ONEWRITE 2
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit single = 1, onewrite = 1;

#define live(p) (phase[p] == LIVE && lease[p] < L)
#define grow(counter, most, counts) counter = ((counts) && counter < (most) -> counter + 1 : counter)

/* pass advances the times that a host measures now by one unit. */
inline pass(p) {
	grow(asked[p], d + 1, phase[p] == LOOKING || phase[p] == CLAIMING || phase[p] == CONFIRM || phase[p] == ENTERING);
	grow(submitted[p], L, writing[p] && (phase[p] == ENTERING || phase[p] == LIVE));
	grow(lease[p], L, true);
	grow(zombie[p], L, true);
	grow(stands[p], dead, phase[p] == LOOKING);
	timer[p] = (timer[p] -> timer[p] - 1 : 0)
}

proctype clock() {
	do
	:: d_step { printf("@0 tick\n"); pass(0); pass(1) }
	:: atomic { ghost -> /* once, or again */
		disk = ghost;
		printf("@0 lands %d\n", ghost);
		if
		:: true
		:: ghost = 0
		fi
	}
	od
}

#ifdef NO_BUDGET             /* a claim does not measure its steps */
#define within true
#else
#define within (asked[p] <= (slow -> d : c))
#endif
#define room (lease[p] + d < L)

inline ask_read(next_phase) {
	phase[p] = next_phase;
	reading[p] = ASKED;
	stood = stands[p];
	asked[p] = 0
}

inline write(next_phase, r) {
	onewrite = unasked(ONEWRITE) writing[p] == NO;
	assert(onewrite);
	phase[p] = next_phase;
	own[p] = r;
	next[p] = r;
	writing[p] = ASKED;
	submitted[p] = 0;
	printf("@%d writes %d\n", p + 1, r)
}

/* start_over: claim.go, startOver. */
inline start_over() {
	slow = 1;
	ask_read(LOOKING)
}

inline forget() {
	own[p] = 0; view[p] = 0; seen = 0; stood = 0; floor = 0; asked[p] = 0; submitted[p] = 0; stands[p] = 0; timer[p] = 0;
	slow = 0; reading[p] = NO; lease[p] = L
}

/* lose ends the lease: lease.go, lose. */
inline lose() {
	printf("@%d is over\n", p + 1);
	phase[p] = OVER;
	forget()
}

/* claim: claim.go, claim. */
inline claim() {
	if
	:: !within -> start_over()
	:: within && spent < (p == 0 -> INCARNATIONS : 1) ->
		spent++;
		write(CLAIMING, record(OLD + p * INCARNATIONS + spent, JOINING))
	:: else -> lose()
	fi
}

#define mine(r) (incarnation(r) > OLD + p * INCARNATIONS + before && incarnation(r) <= OLD + p * INCARNATIONS + spent)

proctype host(byte p) {
	byte spent;              /* number of incarnations used */
	byte before;             /* number of these on earlier machines */
	bit slow;                /* a long claim */
	byte seen;               /* the record as last read: Host in hosts.go */
	byte stood;              /* for how long it had not changed when the last read was requested */
	byte floor;              /* least sequence that the own record must show */

	do
	:: d_step { phase[p] == OVER && spent < (p == 0 -> INCARNATIONS : 1) && writing[p] == NO -> /* a new machine: Start */
		before = spent;
		printf("@%d starts\n", p + 1);
		ask_read(LOOKING)
	}

	:: atomic { reading[p] == ASKED -> /* the sample is taken */
		if
		:: view[p] = disk
		:: next[0] && writing[0] == ASKED -> view[p] = next[0]
		:: next[1] && writing[1] == ASKED -> view[p] = next[1]
		:: writing[0] == ASKED || writing[1] == ASKED -> view[p] = GARBAGE
		fi;
		reading[p] = DONE;
		printf("@%d reads %d\n", p + 1, view[p])
	}

	:: d_step { reading[p] == DONE && phase[p] != LIVE -> /* event.go, TableRead */
		reading[p] = NO;
		if
		:: view[p] != GARBAGE && view[p] != seen -> seen = view[p]; stands[p] = 0; stood = 0
		:: else
		fi;
		if
		:: view[p] == GARBAGE -> ask_read(phase[p])
		:: view[p] != GARBAGE && phase[p] == CONFIRM -> /* claim.go, confirm */
			if
			:: incarnation(view[p]) != incarnation(own[p]) && mine(view[p]) -> start_over()
			:: incarnation(view[p]) != incarnation(own[p]) && !mine(view[p]) -> /* giveWay */
				slow = 0; own[p] = 0;
				ask_read(LOOKING)
			:: incarnation(view[p]) == incarnation(own[p]) && !within -> start_over()
			:: incarnation(view[p]) == incarnation(own[p]) && within -> write(ENTERING, own[p] + 1)
			fi
		:: view[p] != GARBAGE && phase[p] == LOOKING -> /* join.go, look and taken */
			if
			:: view[p] == VIRGIN -> claim()
			:: view[p] != VIRGIN && sequence(view[p]) == LEFT ->
#ifndef SHORT_LEFT           /* short claim of every record that says left */
				slow = 1;
#endif
				claim()
			:: view[p] != VIRGIN && sequence(view[p]) != LEFT && mine(view[p]) -> slow = 1; claim()
			:: view[p] != VIRGIN && sequence(view[p]) != LEFT && !mine(view[p]) && stood >= dead ->
#ifndef SHORT_STILL          /* short claim of a record that stood still */
				slow = 1;
#endif
				claim()
			:: view[p] != VIRGIN && sequence(view[p]) != LEFT && !mine(view[p]) && stood < dead -> ask_read(LOOKING)
			fi
		fi;
		view[p] = 0
	}

	:: d_step { writing[p] == ASKED -> disk = next[p]; writing[p] = DONE; printf("@%d lands %d\n", p + 1, disk) }

	:: d_step { writing[p] == DONE -> /* event.go, Written */
		writing[p] = NO; next[p] = 0;
		printf("@%d returned\n", p + 1);
		if
		:: phase[p] == CLAIMING && within -> /* claim.go, claimed */
#ifdef NO_WAIT               /* a claim looks immediately */
			timer[p] = 0;
#else
			timer[p] = (slow -> longwait : shortwait);
#endif
			phase[p] = WAITING; asked[p] = 0
		:: (phase[p] == CLAIMING || phase[p] == ENTERING) && !within -> start_over()
		:: phase[p] == ENTERING && within -> /* claim.go, enter */
			phase[p] = LIVE;
#ifdef LATE_T0               /* the lease runs from the acknowledgement */
			lease[p] = 0;
#else
			lease[p] = submitted[p]; /* T0-FIRST */
#endif
			printf("@%d IS LIVE\n", p + 1);
			single = unasked(SINGLE) lease[p] >= L || !live(1 - p) && zombie[1 - p] >= L && zombie[p] >= L;
			assert(single);
			floor = sequence(own[p]); slow = 0; asked[p] = 0; seen = 0; stood = 0; stands[p] = 0
#ifdef REVIVE                /* an acknowledgement after the end of the lease renews it */
		:: phase[p] == LIVE ->
#else
		:: phase[p] == LIVE && lease[p] < L -> /* renew.go, renewed */
#endif
#ifdef LATE_T0
			lease[p] = 0;
#else
			lease[p] = submitted[p];
#endif
			printf("@%d renewed\n", p + 1);
			single = unasked(SINGLE) lease[p] >= L || !live(1 - p) && zombie[1 - p] >= L && zombie[p] >= L;
			assert(single);
			floor = sequence(own[p])
#ifndef REVIVE
		:: phase[p] == LIVE && lease[p] >= L /* FINAL */
#endif
		:: phase[p] == OVER
		fi;
		submitted[p] = 0
	}

	:: d_step { phase[p] == WAITING && timer[p] == 0 -> ask_read(CONFIRM) }

	:: d_step { phase[p] == LIVE && reading[p] == NO && writing[p] == NO && sequence(own[p]) <= RENEWALS && room ->
		reading[p] = ASKED
	}
	:: d_step { reading[p] == DONE && phase[p] == LIVE -> /* renew.go, keep */
		reading[p] = NO;
		if
		:: view[p] != GARBAGE && (incarnation(view[p]) != incarnation(own[p]) || sequence(view[p]) < floor) -> lose()
		:: !(view[p] != GARBAGE && (incarnation(view[p]) != incarnation(own[p]) || sequence(view[p]) < floor)) && room ->
			write(LIVE, own[p] + 1)
		:: else /* LAST-CALL */
		fi;
		view[p] = 0
	}
#ifdef REVIVE
	:: d_step { phase[p] == LIVE && lease[p] >= L && writing[p] == NO -> lose() }
#else
	:: d_step { phase[p] == LIVE && lease[p] >= L -> lose() }
#endif

#if CRASHES > 0
	:: atomic { phase[p] != OVER && crashes > 0 && (writing[p] != ASKED || ghost == 0) ->
		crashes--;
		printf("@%d crashes\n", p + 1);
		if
		:: writing[p] == ASKED -> ghost = next[p]
		:: writing[p] == ASKED
		:: writing[p] != ASKED
		fi;
		writing[p] = NO; next[p] = 0;
		zombie[p] = (phase[p] == LIVE -> lease[p] : zombie[p]);
		phase[p] = OVER;
		forget()
	}
#endif
	od
}

init {
	d_step {
		phase[0] = OVER; phase[1] = OVER;
		lease[0] = L; lease[1] = L; zombie[0] = L; zombie[1] = L;
	};
	atomic { run clock(); run host(0); run host(1) }
}
