package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"jettison/internal/agent"
	"jettison/internal/node/config"
)

// watchForKubelet returns a context that also ends when a kubelet appears on a node that started
// without one, and its configuration is usable. appeared ends the watch and reports whether that
// happened.
func watchForKubelet(ctx context.Context, o agent.Options) (until context.Context,
	appeared func() bool) {
	if !o.Config.AwaitsKubelet() {
		return ctx, func() bool { return false }
	}
	until, end := context.WithCancel(ctx)
	found := make(chan bool, 1)
	go func() {
		l := config.AwaitKubelet(until, o.ProcMount)
		if l != nil {
			//log: A kubelet appeared on the node. The agent restarts with the kubelet's configuration.
			//do: Nothing. To keep the agent's configuration, set it in the agent's own file.
			o.Log.Warn("kubelet detected, restarting with its configuration", "config", l.From)
		}
		found <- l != nil
		end()
	}()
	return until, func() bool { end(); return <-found }
}

// restart replaces this process by a new start of the program. It returns only on an error.
func restart() error {
	return fmt.Errorf("restart jettison: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}
