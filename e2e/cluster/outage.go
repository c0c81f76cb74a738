package cluster

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// find is the place of a part that runs, or ran, by its name.
func (c *Cluster) find(name string) int {
	c.t.Helper()
	c.own()
	i := slices.IndexFunc(c.processes, func(p *process) bool { return p.name == name })
	if i < 0 {
		c.t.Fatalf("the cluster has no part %s", name)
	}
	return i
}

// Kill ends a part at once, as a crash does.
func (c *Cluster) Kill(name string) {
	c.t.Helper()
	p := c.processes[c.find(name)]
	if err := p.signal(syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	<-p.ended
}

// Again starts a part that was killed, with the arguments that it had, and waits until it is ready.
func (c *Cluster) Again(name string) {
	c.t.Helper()
	i := c.find(name)
	select {
	case <-c.processes[i].ended:
	default:
		c.t.Fatalf("start %s again: it runs", name)
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

// Pause has a part hang: connections stay open and are still accepted, and nothing answers.
func (c *Cluster) Pause(name string) { c.signal(name, syscall.SIGSTOP) }

// Resume has it go on.
func (c *Cluster) Resume(name string) { c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) {
	c.t.Helper()
	if err := c.processes[c.find(name)].signal(s); err != nil {
		c.t.Fatal(err)
	}
}
