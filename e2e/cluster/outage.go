package cluster

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// find returns the index of a part, running or ended, by its name.
func (c *Cluster) find(name string) int {
	c.t.Helper()
	c.requireOwnCluster()
	i := slices.IndexFunc(c.processes, func(p *process) bool { return p.name == name })
	if i < 0 {
		c.t.Fatalf("the cluster has no part %s", name)
	}
	return i
}

// Kill ends a part immediately, as a crash does.
func (c *Cluster) Kill(name string) {
	c.t.Helper()
	p := c.processes[c.find(name)]
	if err := p.signal(syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	<-p.ended
}

// Again restarts a killed part with the same arguments, and waits until it is ready.
func (c *Cluster) Again(name string) {
	c.t.Helper()
	i := c.find(name)
	select {
	case <-c.processes[i].ended:
	default:
		c.t.Fatalf("start %s again: it still runs", name)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), startDeadline+time.Minute)
	defer cancel()
	run, err := start(ctx, c.processes[i].part, c.dir)
	if run != nil {
		c.processes[i] = run
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Pause makes a part hang: connections stay open and are still accepted, without answers.
func (c *Cluster) Pause(name string) { c.signal(name, syscall.SIGSTOP) }

// Resume continues a paused part.
func (c *Cluster) Resume(name string) { c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) {
	c.t.Helper()
	if err := c.processes[c.find(name)].signal(s); err != nil {
		c.t.Fatal(err)
	}
}
