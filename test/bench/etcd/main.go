// Command etcd locks and unlocks one mutex of an etcd repeatedly, with etcd's Go client and one
// session. For every turn it prints the nanoseconds of the lock and of the unlock. It is a separate
// module, so that nothing else here depends on etcd.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	endpoint := flag.String("endpoint", "http://127.0.0.1:2379", "`URL` of the etcd")
	warmup := flag.Int("warmup", 20, "`turns` that are not told of")
	duration := flag.Duration("for", time.Second, "how long to go on")
	flag.Parse()
	if err := run(*endpoint, *warmup, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(endpoint string, warmup int, duration time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), duration+30*time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client)
	if err != nil {
		return err
	}
	defer session.Close()
	mutex := concurrency.NewMutex(session, "/bench/lock")
	out := bufio.NewWriter(os.Stdout)
	begun := time.Now()
	for n := 0; n <= warmup || time.Since(begun) < duration; n++ {
		if n == warmup {
			begun = time.Now()
		}
		from := time.Now()
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		locked := time.Now()
		if err := mutex.Unlock(ctx); err != nil {
			return err
		}
		if n >= warmup {
			fmt.Fprintln(out, locked.Sub(from).Nanoseconds(), time.Since(locked).Nanoseconds())
		}
	}
	return out.Flush()
}
