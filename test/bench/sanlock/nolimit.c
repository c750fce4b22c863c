/*
 * Preloaded into sanlock where CAP_SYS_RESOURCE is missing: it wants no limit
 * on the memory that it may lock, and ends if that cannot be had, even if it is
 * told to lock none (-l 0). All limits stay as they are.
 */
#include <sys/resource.h>

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	(void)resource;
	(void)limit;
	return 0;
}
