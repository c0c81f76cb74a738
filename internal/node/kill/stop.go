package kill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/base/retry"
)

const (
	stopBound = 2 * time.Second // time for the runtime beyond the grace period
	// concurrent calls of StopContainer; pods with more containers are rare
	stopMax   = 64
	pollFirst = 100 * time.Millisecond
	pollMax   = 2 * time.Second
	maxGrace  = 365 * 24 * time.Hour // practically unlimited
)

// Stop has the runtime stop all containers of the victim with a grace period, and then its
// sandboxes, which have processes in the pod's cgroup too. It returns as soon as the kernel reports
// the cgroup empty, regardless of the runtime's reports. Containers that appear later get the rest
// of the grace period. Stop kills the cgroup through the kernel 2 s after the grace period. A
// concurrent Kill ends the grace period. An error means that a process of the pod may still live:
// the kernel refused the kill, the victim was alive 10 s after it (os.ErrDeadlineExceeded), or ctx
// ended.
//
// Without a known cgroup only the runtime's answers count: Stop returns when the runtime reports no
// container running, and fails at the deadline of the kill. Clean, which kills without a grace
// period, is the caller's next step then. With containers outside the pod's cgroup, Stop also waits
// while the runtime reports others that run, which were not listed when the victim was pinned.
//
// The runtime chooses the order of the containers. preStop hooks, which a kubelet runs, are not
// run.
func (v *Victim) Stop(ctx context.Context, r Runtime, grace time.Duration) error {
	grace = min(max(grace, 0), maxGrace)
	s := stopping{v: v, r: r, deadline: time.Now().Add(grace), requests: map[string]*stopRequest{},
		answers: make(chan answer, stopMax)}
	gentle, end := context.WithTimeout(ctx, grace+stopBound)
	defer end()
	var runs sync.WaitGroup
	var runErr error // error of the runtime; read after runs.Wait
	runs.Go(func() { runErr = s.run(gentle) })
	if !v.Located() {
		if runs.Wait(); runErr != nil {
			return fmt.Errorf("stop pod %s: %w", v.Pod.UID, runErr)
		}
		return nil
	}
	// later answers of the runtime do not matter, and a call that hangs is abandoned
	defer func() { end(); runs.Wait() }()
	defer context.AfterFunc(v.life.alive, end)()

	err := v.WaitEmpty(gentle, grace+2*stopBound)
	if err == nil {
		for s.others.Load() && retry.Sleep(gentle, sweepFirst) {
		}
		return nil
	}
	// returns immediately, except after an error of the wait: the pod still gets its grace period
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

// stopping is the runtime's part of one Stop. One goroutine owns it; the calls answer on a channel.
type stopping struct {
	v        *Victim
	r        Runtime
	deadline time.Time // end of the grace period
	requests map[string]*stopRequest
	inFlight int
	answers  chan answer // stopMax slots, so that no call blocks
	calls    sync.WaitGroup
	// the last list of a victim with containers outside its cgroup had another that runs
	others atomic.Bool
}

// stopRequest is the state of the StopContainer calls for one container.
type stopRequest struct {
	// state at the last call; a container in another state is stopped again without backoff
	state    cri.ContainerState
	inFlight bool
	backoff  time.Duration // from the end of this call to the next
	next     time.Time     // earliest time of the next call
}

type answer struct {
	id  string
	err error
}

// run lists and stops containers until none of the victim's runs, or ctx ends. It returns the last
// error.
func (s *stopping) run(ctx context.Context) error {
	defer s.calls.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var last error
	down := false // the sandboxes were stopped after the last container had ended
	for wait := pollFirst; ; wait = retry.Backoff(wait, pollFirst, pollMax) {
		busy, err := s.poll(ctx)
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
		case err != nil && ctx.Err() == nil: // an error of the end of ctx is ignored
			last = err
		}
		if ctx.Err() != nil {
			if last == nil {
				last = errors.New("the runtime still reports running containers")
			}
			return last
		}
	}
}

// poll stops every container of the victim that has not exited. busy reports whether the runtime
// lists a running one.
func (s *stopping) poll(ctx context.Context) (busy bool, err error) {
	// known sandboxes are stopped despite an error
	err = s.v.sandboxes.lookUp(ctx, s.r, s.v.Pod.UID)
	others := false
	for _, sandbox := range s.v.sandboxes.ids {
		containers, listErr := s.r.ContainersOf(ctx, sandbox)
		if listErr != nil && err == nil {
			err = listErr
		}
		for _, c := range containers {
			runs := c.State != cri.Created // StopPodSandbox handles created containers
			busy, others = busy || runs, others || runs && !slices.Contains(s.v.group.outsideIDs, c.ID)
			s.stopContainer(ctx, c)
		}
	}
	s.others.Store(others && len(s.v.group.outsideIDs) > 0)
	return busy, err
}

// stopContainer starts a StopContainer call, unless one is in flight or its backoff has not passed.
func (s *stopping) stopContainer(ctx context.Context, c cri.Container) {
	now := time.Now()
	q := s.requests[c.ID]
	switch {
	case q == nil:
		q = &stopRequest{backoff: pollFirst}
		s.requests[c.ID] = q
	case q.inFlight || q.state == c.State && now.Before(q.next):
		return
	}
	if s.inFlight == stopMax {
		return
	}
	q.state, q.inFlight = c.State, true
	s.inFlight++
	s.calls.Go(func() {
		err := s.r.StopContainer(ctx, c.ID, s.deadline.Sub(now))
		s.v.steps.call(stepContainer, err)
		s.answers <- answer{c.ID, err}
	})
}

// pause waits for an answer, for wait, or for the end of ctx. It returns the error of the answer.
func (s *stopping) pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case got := <-s.answers:
		q := s.requests[got.id]
		q.inFlight, q.next, q.backoff = false, time.Now().Add(q.backoff), min(q.backoff*2, pollMax)
		s.inFlight--
		return got.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// stopSandboxes stops the sandboxes after their containers.
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
