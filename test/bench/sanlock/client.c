/*
 * Takes and lets go of one resource of a sanlock over and over, by libsanlock
 * and a registration that is made once, and prints for every turn how many
 * nanoseconds the acquire and the release took.
 *
 *	client LOCKSPACE RESOURCE PATH OFFSET WARMUP MILLISECONDS
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sanlock.h>
#include <sanlock_resource.h>
#include <sanlock_rv.h>

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void check(const char *what, int rv)
{
	if (rv >= 0)
		return;
	fprintf(stderr, "sanlock client: %s: %d\n", what, rv);
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: client LOCKSPACE RESOURCE PATH OFFSET WARMUP MILLISECONDS\n");
		return 64;
	}
	struct sanlk_resource *r = calloc(1, sizeof *r + sizeof(struct sanlk_disk));
	if (!r)
		return 1;
	snprintf(r->lockspace_name, sizeof r->lockspace_name, "%s", argv[1]);
	snprintf(r->name, sizeof r->name, "%s", argv[2]);
	snprintf(r->disks[0].path, sizeof r->disks[0].path, "%s", argv[3]);
	r->disks[0].offset = strtoull(argv[4], NULL, 10);
	r->num_disks = 1;
	int warmup = atoi(argv[5]);
	int64_t length = strtoll(argv[6], NULL, 10) * 1000000;

	int sock = sanlock_register();
	check("register", sock);
	int64_t begun = now();
	for (int n = 0; n <= warmup || now() - begun < length; n++) {
		if (n == warmup)
			begun = now();
		r->flags = 0;
		r->lver = 0;
		int64_t from = now();
		check("acquire", sanlock_acquire(sock, -1, 0, 1, &r, NULL));
		int64_t locked = now();
		check("release", sanlock_release(sock, -1, 0, 1, &r));
		if (n >= warmup)
			printf("%" PRId64 " %" PRId64 "\n", locked - from, now() - locked);
	}
	return fflush(stdout) ? 1 : 0;
}
