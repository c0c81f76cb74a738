package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"jettison/internal/agent"
	"jettison/internal/node/config"
)

// untilKubelet is a context that also ends when a kubelet comes on a node whose configuration is
// made without one, and its own can be taken. came ends the search and tells whether it did.
func untilKubelet(ctx context.Context, o agent.Options) (until context.Context, came func() bool) {
	if !o.Config.AwaitsKubelet() {
		return ctx, func() bool { return false }
	}
	until, end := context.WithCancel(ctx)
	found := make(chan bool, 1)
	go func() {
		l := config.Later(until, o.ProcMount)
		if l != nil {
			o.Log.Warn("a kubelet is there now: this program begins anew, by its configuration",
				"config", l.From)
		}
		found <- l != nil
		end()
	}()
	return until, func() bool { end(); return <-found }
}

// anew begins this program once more, as this process. It comes back only with an error.
func anew() error {
	return fmt.Errorf("begin anew: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}
