package kill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/base/retry"
)

const (
	stopBound = 2 * time.Second // beyond the grace period, for the runtime to do what it was asked
	// calls of StopContainer under way at a time: a pod with more containers is a rare one
	stopMax   = 64
	lookFirst = 100 * time.Millisecond
	lookMax   = 2 * time.Second
	maxGrace  = 365 * 24 * time.Hour // as good as for ever
)

// Stop has the runtime end all containers of the victim, with a grace period, and then its
// sandboxes, whose own processes live in the pod's cgroup too. It returns as soon as the cgroup is
// empty by the kernel's word, whatever the runtime says, or does not. Containers that appear
// meanwhile get what is left of the grace period. 2 s after it the cgroup is killed through the
// kernel. A Kill by another goroutine meanwhile ends the grace period. An error means that
// something of the pod may still live: the kernel refused the kill, or the victim was alive 10 s
// after it (os.ErrDeadlineExceeded), or ctx ended.
//
// Without a known cgroup the runtime's answers are all there is: Stop returns when it calls no
// container running any more, and gives up with the kill's deadline; Clean, which does not wait for
// anything to end well, is what is left then.
//
// The order among the containers is the runtime's business, and preStop hooks are a kubelet's: none
// is run.
func (v *Victim) Stop(ctx context.Context, r Runtime, grace time.Duration) error {
	grace = min(max(grace, 0), maxGrace)
	s := stopping{v: v, r: r, deadline: time.Now().Add(grace), asked: map[string]*asked{},
		answers: make(chan answer, stopMax)}
	gentle, end := context.WithTimeout(ctx, grace+stopBound)
	defer end()
	var asking sync.WaitGroup
	var wrong error // what the runtime did not do; read once asking is over
	asking.Go(func() { wrong = s.run(gentle) })
	if !v.group.known {
		if asking.Wait(); wrong != nil {
			return fmt.Errorf("stop pod %s: %w", v.Pod.UID, wrong)
		}
		return nil
	}
	// what the runtime still says does not matter, and a call that hangs is abandoned
	defer func() { end(); asking.Wait() }()
	defer context.AfterFunc(v.life.alive, end)()

	err := v.WaitEmpty(gentle, grace+2*stopBound)
	if err == nil {
		return nil
	}
	// at once, but if the kernel's word could not be had: the pod gets its grace period all the same
	<-gentle.Done()
	if ctx.Err() != nil {
		return fmt.Errorf("stop pod %s: %w", v.Pod.UID, err)
	}
	if v.life.alive.Err() == nil {
		if err := v.Kill(); err != nil {
			return fmt.Errorf("stop pod %s: its grace period is over: %w", v.Pod.UID, err)
		}
	}
	if err := v.WaitEmpty(ctx, eviction.DieLimit); err != nil {
		return fmt.Errorf("stop pod %s: %w", v.Pod.UID, err)
	}
	return nil
}

// stopping is one Stop, as far as it is asked of the runtime. One goroutine owns it; the calls
// answer on a channel.
type stopping struct {
	v        *Victim
	r        Runtime
	deadline time.Time // of the grace period
	asked    map[string]*asked
	underway int
	answers  chan answer // as many slots as calls may be under way: none of them waits
	calls    sync.WaitGroup
}

// asked is what a container was asked.
type asked struct {
	// that it was in then: one that has been started since is asked again at once
	state    cri.ContainerState
	underway bool
	wait     time.Duration // before it is asked again
	next     time.Time     // when
}

type answer struct {
	id  string
	err error
}

// run looks and asks until nothing of the victim runs, or ctx ends. It returns the last thing that
// was wrong.
func (s *stopping) run(ctx context.Context) error {
	defer s.calls.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var last error
	down := false // the sandboxes were stopped when nothing ran any more
	for wait := lookFirst; ; wait = retry.Backoff(wait, lookFirst, lookMax) {
		busy, err := s.look(ctx)
		if err == nil && !busy {
			if down {
				return nil
			}
			if err = s.stopSandboxes(ctx); err == nil {
				down = true
				continue
			}
		}
		down = false
		answered := s.pause(ctx, wait)
		switch {
		case answered != nil:
			last = answered
		case err != nil && ctx.Err() == nil: // not for being told to end
			last = err
		}
		if ctx.Err() != nil {
			if last == nil {
				last = errors.New("the runtime still calls containers running")
			}
			return last
		}
	}
}

// look asks every container of the victim that has not exited to stop. busy: one of them runs, as
// far as the runtime knows.
func (s *stopping) look(ctx context.Context) (busy bool, err error) {
	// the sandboxes that are known are stopped all the same
	err = s.v.sandboxes.lookUp(ctx, s.r, s.v.Pod.UID)
	for _, sandbox := range s.v.sandboxes.ids {
		containers, wrong := s.r.ContainersOf(ctx, sandbox)
		if wrong != nil && err == nil {
			err = wrong
		}
		for _, c := range containers {
			busy = busy || c.State != cri.Created // which StopPodSandbox takes care of
			s.stopContainer(ctx, c)
		}
	}
	return busy, err
}

// stopContainer asks one container, unless that was done lately.
func (s *stopping) stopContainer(ctx context.Context, c cri.Container) {
	now := time.Now()
	a := s.asked[c.ID]
	switch {
	case a == nil:
		a = &asked{wait: lookFirst}
		s.asked[c.ID] = a
	case a.underway || a.state == c.State && now.Before(a.next):
		return
	}
	if s.underway == stopMax {
		return
	}
	a.state, a.underway = c.State, true
	s.underway++
	s.calls.Go(func() {
		err := s.r.StopContainer(ctx, c.ID, s.deadline.Sub(now))
		s.v.steps.call(stepContainer, err)
		s.answers <- answer{c.ID, err}
	})
}

// pause waits for an answer or a while. It returns what was wrong with an answer.
func (s *stopping) pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case got := <-s.answers:
		a := s.asked[got.id]
		a.underway, a.next, a.wait = false, time.Now().Add(a.wait), min(a.wait*2, lookMax)
		s.underway--
		return got.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// stopSandboxes stops what is left of the sandboxes themselves.
func (s *stopping) stopSandboxes(ctx context.Context) error {
	for _, id := range s.v.sandboxes.ids {
		err := s.r.StopPodSandbox(ctx, id)
		s.v.steps.call(stepStop, err)
		if err != nil {
			return err
		}
	}
	return nil
}
