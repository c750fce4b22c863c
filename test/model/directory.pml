/* The lock directory and its intents: daemon/locks/create.go, remove.go, intent.go and
 * restoreentries.go, readRemovalPending in daemon/locks/driver/removal.go, and what a machine does
 * about a removal (bakery/remove.go).
 *
 * Hosts look a lock up by its one name, create it, use it, restore its entry and remove it. They
 * die at any time, are known to be dead some time later, and return as another incarnation; or only
 * the process ends and another one continues within the incarnation. The directory's lock and the
 * locks in the places are atomic here: lock.pml has them.
 *
 * MEMBERS=1 is one disk: an entry is a word, and a write lands at some time, also after its host
 * has died. MEMBERS=3 has a copy of each entry on each member: a write lands on each member at some
 * time, a read returns the copies of any two members. The slots in the directory's lock have one
 * writer, so they are what was written last, and what is being written or was half-written: with
 * three members a read may return either, each time.
 */
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef PLACES
#define PLACES 2
#endif
#ifndef MEMBERS
#define MEMBERS 1
#endif
#ifndef OPS
#define OPS 1              /* operations of each host */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#define SEVERAL (MEMBERS > 1)
#define ALL ((1 << MEMBERS) - 1)

/* An entry is a byte: its creation id, and whether it has the name. An intent is a byte: a place,
 * the entry to write there, and whether a host that returned wrote it to settle the place. */
#define entry(creation, named) (((creation) << 1) | (named))
#define named(e)     ((e) & 1)
#define creation(e)  ((e) >> 1)
#define intent(p, e) (128 | ((e) << 1) | (p))
#define place(i)     ((i) & 1)
#define content(i)   (((i) >> 1) & 63)
#define max(a, b)    ((a) > (b) -> (a) : (b))

/* The entries on the disks, and their versions: (token of the directory's lock, counter). */
byte disk[6], version[6];
#define at(p, m) ((p) * MEMBERS + (m))
byte lastversion;

/* Of each host: the write of an entry that is in flight, and the members on which it has not
 * landed. */
byte writeplace[3], writeentry[3], writeversion[3], flying[3];
#define landedon(h) (MEMBERS - (flying[h] & 1) - ((flying[h] >> 1) & 1) - ((flying[h] >> 2) & 1))
#define acknowledged(h) (landedon(h) > MEMBERS / 2)

/* Of each host, the intent in its slot of the directory's lock: as last written; and as it is being
 * written, or was half-written; and what was half-written before. */
byte intends[3], nextintent[3], leftover[3];
bit  halfway[3];
byte settles[3], nextsettles[3], leftsettles[3]; /* the version of each, if it settles a place, or 0 */

bit  former[3];            /* the slot is as an earlier incarnation left it */

byte guard;                /* the host that holds the directory's lock, + 1 */

/* The slots of the locks in the places: the creation id that a slot shows, its phase, and whether
 * the incarnation that wrote it is over. */
#define IDLE 0
#define IN   1
#define MARK 2
byte shows[6], phase[6];
bit  over[6];
#define slot(h, p) ((h) * PLACES + (p))

/* Hosts. */
#define DIES    1
#define RESTARTS_NOW 2
byte ending[3];            /* what is about to happen to its process */
bit  dead[3], known[3];    /* known: its lease and its holders are over */
byte deaths = DEATHS, restarts = RESTARTS;
byte done;                 /* the hosts that have no more to do, a bit each */

/* The clients' knowledge. */
byte uses[3];              /* the intent-like word of the lock that a client of the host holds */
byte live;                 /* the lock that a client was told of, and that is not being removed */
int  removed;              /* locks that a client was told are removed, a bit each */
#define bitof(p, e) (1 << (creation(e) * PLACES + (p)))

#define TWO    1
#define BACK   2
#define LOST   3
#define USABLE 4
#ifdef ONLY
#define unasked(property) (ONLY != property) ||
#else
#define unasked(property)
#endif
bit two = 1, back = 1, lost = 1, usable = 1;

byte j, v, n, m;           /* within a step only */

/* land lets the write of host h land on a member. */
#define lands(h, m) d_step { (flying[h] >> m) & 1 -> \
	disk[at(writeplace[h], m)] = writeentry[h]; version[at(writeplace[h], m)] = writeversion[h]; \
	flying[h] = flying[h] & ~(1 << m); \
	printf("@%d lands %d %d %d %d\n", h + 1, m, writeplace[h], writeentry[h], writeversion[h]); \
	if :: flying[h] == 0 -> writeplace[h] = 0; writeentry[h] = 0; writeversion[h] = 0 :: else fi }
#define slotlands(h) d_step { halfway[h] -> \
	intends[h] = nextintent[h]; settles[h] = nextsettles[h]; nextintent[h] = 0; nextsettles[h] = 0; leftover[h] = 0; leftsettles[h] = 0; halfway[h] = 0; former[h] = 0; printf("@%d slotlands %d\n", h + 1, intends[h]) }

active proctype storage() {
end:
	do
	:: lands(0, 0)
	:: lands(1, 0)
	:: slotlands(0)
	:: slotlands(1)
#if MEMBERS > 1
	:: lands(0, 1)
	:: lands(0, 2)
	:: lands(1, 1)
	:: lands(1, 2)
#endif
#if HOSTS > 2
	:: lands(2, 0)
	:: slotlands(2)
#if MEMBERS > 1
	:: lands(2, 1)
	:: lands(2, 2)
#endif
#endif
	od
}

/* Fate ends processes and makes deaths known. */
#define kills(h) d_step { deaths > 0 && !dead[h] && !ending[h] && !((done >> h) & 1) -> deaths--; ending[h] = DIES }
#define stops(h) d_step { restarts > 0 && !dead[h] && !ending[h] && !((done >> h) & 1) -> restarts--; ending[h] = RESTARTS_NOW }
#define declares(h) d_step { dead[h] && !known[h] -> \
	printf("@%d KNOWN\n", h + 1); \
	known[h] = 1; uses[h] = 0; \
	over[slot(h, 0)] = 1; over[slot(h, 1)] = 1; \
	guard = (guard == h + 1 -> 0 : guard) }

active proctype fate() {
end:
	do
	:: false
#if DEATHS > 0
	:: kills(0)
	:: kills(1)
	:: declares(0)
	:: declares(1)
#if HOSTS > 2
	:: kills(2)
	:: declares(2)
#endif
#endif
#if RESTARTS > 0
	:: stops(0)
	:: stops(1)
#if HOSTS > 2
	:: stops(2)
#endif
#endif
	od
}

/* read_entry reads the entry in a place: got, of the version gotversion. settled: f+1 copies show
 * it. */
inline read_entry(p) {
	atomic {
#if MEMBERS > 1
		if
		:: j = at(p, 0); n = at(p, 1)
		:: j = at(p, 0); n = at(p, 2)
		:: j = at(p, 1); n = at(p, 2)
		fi;
		d_step {
			got = (version[j] > version[n] -> disk[j] : disk[n]);
			gotversion = max(version[j], version[n]);
#ifdef UNSETTLED            /* an entry counts although only one of the copies read shows it */
			settled = 1;
#else
			settled = (disk[j] == disk[n]);
#endif
			printf("@%d reads %d %d %d %d\n", h + 1, p, got, gotversion, settled);
			j = 0; n = 0
		}
#else
		got = disk[p]; settled = 1;
		printf("@%d reads %d %d\n", h + 1, p, got)
#endif
	}
}

/* read_intents reads what all other hosts intend. The content written last counts, and one that is
 * half-written, if the read returns it. */
#ifdef INTENTS_NEWEST       /* of a slot that is half-written, the newest content counts alone */
#define read_intent(k) if \
	:: old[k] = (k == h -> 0 : intends[k]); new[k] = 0 \
	:: SEVERAL && halfway[k] && k != h -> old[k] = nextintent[k]; new[k] = 0 \
	:: SEVERAL && leftover[k] && k != h -> old[k] = leftover[k]; new[k] = 0 \
	fi
#else
#define read_intent(k) old[k] = (k == h -> 0 : intends[k]); \
	if \
	:: new[k] = 0 \
	:: SEVERAL && halfway[k] && k != h -> new[k] = nextintent[k] \
	:: SEVERAL && leftover[k] && k != h -> new[k] = leftover[k] \
	fi
#endif
inline read_intents() {
	atomic {
		read_intent(0);
		read_intent(1);
#if HOSTS > 2
		read_intent(2);
#endif
		printf("@%d intents %d %d %d %d %d %d\n", h + 1, old[0], old[1], old[2], new[0], new[1], new[2])
	}
}
#define some(condition) (condition(old[0]) || condition(old[1]) || condition(old[2]) || \
	condition(new[0]) || condition(new[1]) || condition(new[2]))
#define is_here(i)  ((i) && place(i) == p)
#define is_very(i)  ((i) == intent(p, e))
#define is_other(i) ((i) && place(i) == p && content(i) != e)
#define is_clear(i) ((i) && place(i) == p && !named(content(i)) && creation(content(i)) > creation(e))
inline forget_intents() {
	old[0] = 0; old[1] = 0; old[2] = 0; new[0] = 0; new[1] = 0; new[2] = 0
}

/* write_intent writes the own slot in the directory's lock. */
inline write_intent(i, settle) {
	d_step {
		nextintent[h] = i; nextsettles[h] = settle; halfway[h] = 1;
		printf("@%d intends %d\n", h + 1, i)
	}
	!halfway[h]
}

inline write_entry(p, w) {
	d_step { flying[h] == 0 ->
		writeplace[h] = p; writeentry[h] = w; flying[h] = ALL;
#if MEMBERS > 1
		lastversion++; writeversion[h] = lastversion;
#endif
		printf("@%d writes %d %d %d\n", h + 1, p, w, writeversion[h])
	}
}

inline acquire_guard() {
	d_step { !guard -> guard = h + 1; printf("@%d guard\n", h + 1) }
}
inline release_guard() {
	d_step { guard = 0; printf("@%d unguard\n", h + 1) }
}

/* put writes an entry, after an intent. put_done removes the intent and releases the directory's
 * lock. */
inline put(p, w) {
#ifndef NO_INTENT
	write_intent(intent(p, w), 0);
#endif
	write_entry(p, w);
#ifdef EARLY_REMOVED        /* the intent is removed before the write has returned */
	write_intent(0, 0);
#endif
	acknowledged(h)
}
inline put_done() {
#ifndef NO_RETURNED
	if
	:: flying[h] == 0
	:: SEVERAL && flying[h] -> release_guard(); flying[h] == 0
	fi;
#endif
#if !defined(NO_INTENT) && !defined(EARLY_REMOVED)
	write_intent(0, 0);
#endif
	if
	:: guard == h + 1 -> release_guard()
	:: else
	fi
}

/* A slot of host k in place p: shows a later creation than the entry e and is not spared; blocks a
 * host that takes part by e. */
#ifdef NO_NEWEST            /* NEWEST: later creations in slots are ignored */
#define newer(k) false
#else
#define newer(k) (k != h && shows[slot(k, p)] > creation(e) && !(over[slot(k, p)] && ((spared >> k) & 1)))
#endif
#define blocks(k) (k != h && shows[slot(k, p)] == creation(e) && phase[slot(k, p)] != IDLE && !over[slot(k, p)])
#define passed(k) (newer(k) && over[slot(k, p)])         /* a dead host's removal, or what it came to */
#define stale     (shows[slot(h, p)] > creation(e) && !over[slot(h, p)])
#define ended(k)  (newer(k) && !over[slot(k, p)] && phase[slot(k, p)] == IDLE)
#if HOSTS > 2
#define any(condition) (condition(0) || condition(1) || condition(2))
#else
#define any(condition) (condition(0) || condition(1))
#endif
#define highest (max(max(shows[p], shows[PLACES + p]), shows[2 * PLACES * (HOSTS > 2) + p]))

#define told(p, e) d_step { \
	lost = unasked(LOST) (live == 0 || live == intent(p, e)); assert(lost); \
	live = intent(p, e); \
	printf("@%d TOLD %d %d\n", h + 1, p, e) }

/* One client's operation: find or create the lock and use it, or remove it. */
#define USE    0
#define REMOVE 1

proctype host(byte h) {
	byte ops = OPS, p, e, got, gotversion, spared, r[PLACES], torn, w;
	byte old[3], new[3];
	bit settled, op, found, audit, again, pending;

	do
	:: {
		if
		:: again -> goto recover
		:: else
		fi;
ready:
		atomic { p = 0; e = 0; got = 0; gotversion = 0; spared = 0; r[0] = 0; r[1] = 0; torn = 0; w = 0;
			settled = 0; op = 0; found = 0; pending = 0; forget_intents() }
		if
		:: ops == 0 -> goto finished
		:: ops > 0 -> ops--; op = USE
		:: ops > 0 && !audit -> ops--; op = REMOVE
		fi;
		if
		:: !audit -> /* look it up, without the directory's lock */
			if
			:: p = 0
			:: p = 1
			fi;
			read_entry(p);
			if
			:: settled && named(got) -> e = got; goto enter
			:: else
			fi
		:: true
		fi;
		if
		:: op == REMOVE -> goto ready
		:: else
		fi;

		/* create: createGuarded and place in create.go */
create:
		acquire_guard();
#ifdef ENTRIES_FIRST        /* the entries are read before the intents */
		read_entry(0);
		d_step { r[0] = got; torn = torn | (!settled) };
		read_entry(1);
		d_step { r[1] = got; torn = torn | ((!settled) << 1) };
		read_intents();
#else
		read_intents();
		read_entry(0);
		d_step { r[0] = got; torn = torn | (!settled) };
		read_entry(1);
		d_step { r[1] = got; torn = torn | ((!settled) << 1) };
#endif
		atomic {
			found = 0; w = 0;
			if
			:: torn -> /* an unsettled entry is rewritten, as its newest copy is */
				p = (torn & 1 -> 0 : 1); e = r[p];
#if defined(NO_REWRITE)     /* an unsettled entry is left as it is */
				w = 2
#elif defined(SETTLE_OTHER)         /* also where a host intends another entry */
				w = 1
#else
				w = (some(is_other) -> 2 : 1)
#endif
			:: !torn && named(r[0]) -> p = 0; e = r[0]; found = 1
			:: !torn && named(r[1]) && !named(r[0]) -> p = 1; e = r[1]; found = 1
			:: !torn && !named(r[0]) && !named(r[1]) ->
				if /* where there is room: other names may have the other place */
				:: got = 0
				:: got = 1
				fi;
				d_step {
					e = 0; v = 0;
#ifndef ELSEWHERE           /* the name is created elsewhere than where it is intended */
					j = 0;
					do
					:: j < 6 ->
						n = (j < 3 -> old[j] : new[j - 3]);
						if
						:: n && named(content(n)) && creation(r[place(n)]) < creation(content(n)) ->
							v = v | (e && (e != content(n) || p != place(n)));
							p = place(n); e = content(n)
						:: else
						fi;
						j++
					:: else -> break
					od;
#endif
					if
					:: v -> w = 2   /* two dead hosts intend it in two places */
					:: !v && e -> w = 1
#ifdef PLACE_USED           /* an intended place is used */
					:: !v && !e -> p = got; w = 1
#else
					:: !v && !e ->
						p = got;
						p = (some(is_here) -> 1 - p : p);
						w = (some(is_here) -> 2 : 1) /* 2: full */
#endif
					fi;
					if
					:: w == 1 && !e ->
						n = max(creation(r[0]), creation(r[1]));
#ifndef CREATION_LOW        /* the creation id is above the entries alone */
						j = 0;
						do
						:: j < 3 -> n = max(n, max(creation(content(old[j])), creation(content(new[j])))); j++
						:: else -> break
						od;
						n = max(n, highest);
#endif
						e = entry(n + 1, 1)
					:: else
					fi;
					j = 0; v = 0; n = 0
				}
			fi;
			forget_intents(); got = 0; gotversion = 0; r[0] = 0; r[1] = 0
		};
		if
		:: found -> release_guard(); goto enter
		:: w == 2 -> release_guard(); torn = 0;
			usable = unasked(USABLE) !audit; assert(usable);
			goto ready
		:: else
		fi;
		if
		:: torn -> torn = 0; put(p, e); put_done(); goto create
		:: else
		fi;
		put(p, e);
		told(p, e);
		put_done();

enter:  /* acquire.go and peers.go of package bakery; removalPending in the driver */
		atomic { got = 0; gotversion = 0; torn = 0; w = 0; settled = 0; found = 0 };
		if
		:: atomic { stale -> /* by an own removal */
			usable = unasked(USABLE) !audit; assert(usable);
			goto ready
		}
		:: d_step { !stale && !any(newer) && !any(blocks) ->
			shows[slot(h, p)] = creation(e); phase[slot(h, p)] = IN; over[slot(h, p)] = 0;
			printf("@%d ENTERS %d %d\n", h + 1, p, e)
		}
		:: !stale && (any(passed) || any(ended)) ->
			d_step {
				found = 0; w = 0;
				if
				:: passed(0) -> w = 1
				:: !passed(0) && passed(1) -> w = 2
				:: !passed(0) && !passed(1) -> w = (any(passed) -> 3 : 0)
				fi
			};
			read_intents();
			d_step {
				found = 0;
#ifndef SPARED_BLIND        /* what the dead remover intends is not read */
				if
				:: w -> pending = pending | is_clear(old[w - 1]) | is_clear(new[w - 1])
				:: else
				fi;
#endif
				forget_intents()
			};
			read_entry(p);
			atomic {
				if
				:: settled && got != e -> got = 0; settled = 0; w = 0;
					if
					:: audit -> goto create
					:: !audit -> goto ready
					fi
				:: settled && got == e ->
					usable = unasked(USABLE) (!audit || w); assert(usable);
					if
					:: w -> spared = spared | (1 << (w - 1))
					:: !w
					fi
				:: !settled && audit -> goto create
				:: !settled && !audit
				fi;
				goto enter
			}
		:: !audit -> goto ready /* gives up */
		fi;
		if
		:: pending -> /* finishAcquire: it may have returned since */
			read_intents();
			d_step { pending = some(is_clear); forget_intents() };
			if
			:: pending -> goto clear
			:: else -> read_entry(p);
				if
				:: settled && got == e
				:: !(settled && got == e) ->
					d_step { phase[slot(h, p)] = IDLE };
					if
					:: audit -> goto create
					:: !audit -> goto ready
					fi
				fi
			fi
		:: else
		fi;
		if
		:: op == REMOVE -> goto clear
		:: else
		fi;

		/* A client uses it. */
		d_step {
			two = unasked(TWO) ((!uses[0] || uses[0] == intent(p, e)) && (!uses[1] || uses[1] == intent(p, e)) && (!uses[2] || uses[2] == intent(p, e)));
			assert(two);
			back = unasked(BACK) !(removed & bitof(p, e));
			assert(back);
			uses[h] = intent(p, e); live = intent(p, e);
			printf("@%d USES %d %d\n", h + 1, p, e)
		};
#ifdef RESTORES
		if
		:: true -> /* restoreKnownEntry */
			acquire_guard();
			read_intents();
			if
			:: some(is_here) -> release_guard()
			:: else ->
				forget_intents();
				put(p, e);
				put_done()
			fi;
			forget_intents()
		:: true
		fi;
#endif
		d_step { uses[h] = 0; phase[slot(h, p)] = IDLE; printf("@%d LEAVES %d\n", h + 1, p) };
		goto ready;

clear:  /* bakery/remove.go, and clear in remove.go */
#ifndef NO_MARK             /* the removal is not shown before the entry is cleared */
		atomic { n = highest + 1; shows[slot(h, p)] = n; phase[slot(h, p)] = MARK; w = n; n = 0; got = 0; settled = 0;
			printf("@%d MARKS %d %d\n", h + 1, p, w) };
#else
		atomic { n = highest + 1; w = n; n = 0 };
#endif
		if
		:: !any(blocks) && !any(newer)
		:: any(newer) || !audit -> /* another remover, or given up */
			d_step { shows[slot(h, p)] = creation(e); phase[slot(h, p)] = IDLE; printf("@%d UNMARKS %d %d\n", h + 1, p, creation(e)) };
			if
			:: audit -> spared = 0; pending = 0; goto enter
			:: !audit -> goto ready
			fi
		fi;
		acquire_guard();
		read_entry(p);
		read_intents();
		if
		:: settled && got != e -> forget_intents(); release_guard()
#ifndef CLEAR_UNCHECKED     /* the intents are not checked before the clearing */
		:: !(settled && got != e) && some(is_very) ->
			forget_intents(); release_guard();
			usable = unasked(USABLE) !audit; assert(usable);
			d_step { shows[slot(h, p)] = creation(e); phase[slot(h, p)] = IDLE; printf("@%d UNMARKS %d %d\n", h + 1, p, creation(e)) };
			goto ready
#endif
#ifndef CLEAR_UNCHECKED
		:: !(settled && got != e) && !some(is_very) ->
#else
		:: !(settled && got != e) ->
#endif
			d_step { forget_intents(); live = (live == intent(p, e) -> 0 : live) };
			put(p, entry(w, 0));
			put_done()
		fi;
		d_step {
			live = (live == intent(p, e) -> 0 : live);
			removed = removed | bitof(p, e);
			shows[slot(h, p)] = w; phase[slot(h, p)] = IDLE;
			printf("@%d REMOVED %d %d\n", h + 1, p, e)
		};
		if
		:: audit -> goto create
		:: !audit -> goto ready
		fi;

recover: /* what an earlier incarnation or process left: intent.go, resume.go */
		atomic { p = 0; e = 0; got = 0; gotversion = 0; spared = 0; r[0] = 0; r[1] = 0; torn = 0; w = 0;
			settled = 0; op = 0; pending = 0; forget_intents() }
#if MEMBERS > 1
		atomic {
			if
			:: w = intends[h]; v = settles[h]
			:: leftover[h] -> w = leftover[h]; v = leftsettles[h]
			fi;
			r[0] = v; v = 0 /* r[0]: its version, if it settles the place */
		}
		if
		:: w == 0 && leftover[h] -> write_intent(0, 0)
		:: w == 0 && !leftover[h]
#ifdef NO_RESOLVE           /* RESOLVE: an intent is dropped without a look at its entry */
		:: w -> w = 0; write_intent(0, 0)
#else
		:: w ->
			acquire_guard();
			p = place(w);
			read_entry(p);
			d_step {
				e = got;
				if
#ifndef RESTART_AS_READ     /* a process that continues rewrites the entry as read, too */
				:: !former[h] -> e = content(w) /* of this incarnation: it is carried out */
#endif
#ifndef NO_SETTLES          /* an intent to settle a place is not carried out */
				:: former[h] && r[0] > gotversion -> e = content(w)
#endif
				:: else
				fi;
				lastversion++; r[0] = lastversion
			};
			write_intent(intent(p, e), r[0]);
			write_entry(p, e);
			acknowledged(h);
			put_done()
#endif
		fi;
#else
		w = intends[h];
		if
		:: w && !former[h] && named(content(w)) -> /* the same incarnation carries it out */
			acquire_guard();
			put(place(w), content(w));
			put_done()
		:: w && (former[h] || !named(content(w))) -> write_intent(0, 0)
		:: !w
		fi;
#endif
		/* the slots in the places: machine.Resume */
		p = 0;
		do
		:: p < PLACES && phase[slot(h, p)] == MARK && !over[slot(h, p)] ->
			read_entry(p);
			if
			:: named(got) && creation(got) < shows[slot(h, p)] && settled ->
				d_step { shows[slot(h, p)] = creation(got); phase[slot(h, p)] = IDLE; printf("@%d UNMARKS %d %d\n", h + 1, p, creation(got)) }
			:: settled && !(named(got) && creation(got) < shows[slot(h, p)]) -> d_step { phase[slot(h, p)] = IDLE }
			:: !settled
			fi
		:: p < PLACES && phase[slot(h, p)] == IN && !over[slot(h, p)] -> d_step { uses[h] = 0; phase[slot(h, p)] = IDLE; printf("@%d LEAVES %d\n", h + 1, p) }
		:: p < PLACES && (phase[slot(h, p)] == IDLE || over[slot(h, p)]) -> p++
		:: p == PLACES -> break
		od;
		atomic { again = 0; found = 0 };
		goto ready;

finished:
		if
		:: h == 0 && !audit -> done = done | 1; done == (1 << HOSTS) - 1; audit = 1; ops = 1; goto ready
		:: h != 0 -> done = done | (1 << h); break
		:: h == 0 && audit -> break
		fi
	}
	unless {
		atomic {
			ending[h] ->
			again = 1; p = 0; e = 0; got = 0; gotversion = 0; spared = 0; r[0] = 0; r[1] = 0; torn = 0; w = 0;
			settled = 0; op = 0; pending = 0; forget_intents();
			if
			:: ending[h] == DIES -> dead[h] = 1; ending[h] = 0; printf("@%d DIES\n", h + 1);
				known[h]; found = 1
			:: else -> printf("@%d RESTARTS\n", h + 1); found = 0
			fi
		}
		/* Its writes in flight have landed by now or never will. */
		atomic {
			n = 0; m = 0;
			d_step { j = 0 };
			do
			:: j < 3 && ((flying[h] >> j) & 1) ->
				if
				:: disk[at(writeplace[h], j)] = writeentry[h]; version[at(writeplace[h], j)] = writeversion[h]
				:: true
				fi;
				j++
			:: j < 3 && !((flying[h] >> j) & 1) -> j++
			:: j == 3 -> break
			od;
			j = 0;
			flying[h] = 0; writeplace[h] = 0; writeentry[h] = 0; writeversion[h] = 0;
			if
			:: halfway[h] ->
				if
				:: intends[h] = nextintent[h]; settles[h] = nextsettles[h]; former[h] = 0;
					leftover[h] = 0; leftsettles[h] = 0
				:: !SEVERAL
#ifdef NO_NOTE              /* NOTE-FIRST: a restarted process does not complete the write of its slot */
				:: SEVERAL -> leftover[h] = nextintent[h]; leftsettles[h] = nextsettles[h]
#else
				:: SEVERAL && found -> leftover[h] = nextintent[h]; leftsettles[h] = nextsettles[h]
#endif
				fi;
				nextintent[h] = 0; nextsettles[h] = 0; halfway[h] = 0
			:: !halfway[h]
			fi;
			if
			:: guard == h + 1 -> guard = 0
			:: else
			fi;
			if
			:: found -> dead[h] = 0; known[h] = 0; former[h] = 1
			:: else
			fi;
			ending[h] = 0;
			printf("@%d RETURNS %d\n", h + 1, intends[h])
		}
	}
	od
}

init {
	atomic {
		if
		:: true
		:: d_step {
			j = 0;
			do
			:: j < MEMBERS -> disk[at(0, j)] = entry(1, 1); j++
			:: else -> break
			od;
			j = 0; live = intent(0, entry(1, 1)) }
		fi;
		run host(0);
		run host(1);
#if HOSTS > 2
		run host(2)
#endif
	}
}
