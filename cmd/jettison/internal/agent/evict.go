package agent

import (
	"context"
	"errors"
	"time"

	"jettison/cmd/jettison/internal/kill"
	"jettison/eviction"
	"jettison/stats"
)

// underway is an eviction from its kill until the memory is back.
type underway struct {
	decision eviction.Decision
	ranking  []row // the decision's, which points into a Summary that is written again
	victim   *kill.Victim
	killed   kill.Stamp
	emptied  time.Time // zero: the cgroup still has processes
	killErr  error
}

// cleaned is what the runtime made of an evicted pod.
type cleaned struct {
	pod stats.PodReference
	err error
}

// evict pins the victim, measures once more, and kills.
func (a *agent) evict(ctx context.Context, d eviction.Decision) {
	pod := &d.Evictions[0].Pod
	victim, err := kill.Pin(a.FS, pod)
	if err != nil { // it went away since it was ranked: the next look ranks again
		a.repeat("pin: "+err.Error(), func() { a.log.Info("the victim is gone already", "pod", a.name(pod.PodRef), "error", err) })
		return
	}
	if len(a.measure(time.Now())) == 0 {
		victim.Close()
		a.log.Info("eviction abandoned: the memory is back", append(signalFields(d.Signal), "pod", a.name(pod.PodRef))...)
		return
	}
	a.manager.Begin(d.Evictions[0], a.manager.Memory(&a.node).Available)
	u := &underway{decision: d, victim: victim}
	u.killErr = victim.Kill()
	u.killed = kill.Now()
	u.ranking = a.ranking(d) // after the kill, before the next look
	a.current = u
	if !pod.Announced {
		a.watcher.ask() // for its name in the log
	}
	a.evictions.Go(func() {
		defer victim.Close()
		err := a.finish(ctx, victim, u.killErr)
		select {
		case a.cleaned <- cleaned{pod.PodRef, err}:
		case <-ctx.Done():
		}
	})
}

// finish waits for the victim's end, says so on a.empty, and has the runtime clean up. Where the kernel's way to kill was
// refused, the runtime is what kills.
func (a *agent) finish(ctx context.Context, victim *kill.Victim, killErr error) error {
	// What was begun is brought to its end when the agent is told to stop, but not for long.
	cleaning, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cleanGrace, cancel) })()
	slow := func(err error) { a.log.Error("the runtime is slow to clean up, going on", "error", err) }
	if killErr == nil {
		a.empty <- victim.WaitEmpty(ctx, dieLimit)
		return victim.Clean(cleaning, a.Client, slow)
	}
	short, stop := context.WithTimeout(cleaning, dieLimit)
	err := victim.Clean(short, a.Client, slow)
	stop()
	a.empty <- errors.Join(err, victim.WaitEmpty(ctx, 0))
	if err != nil {
		err = victim.Clean(cleaning, a.Client, slow)
	}
	return err
}

// interrupted leaves a trace of an eviction that was under way when the agent was told to stop.
func (a *agent) interrupted() {
	if u := a.current; u != nil {
		a.log.Info("stopped during an eviction", append(a.describe(u.decision), "killedAtMonotonic", u.killed.Monotonic)...)
	}
}

// emptied takes the word of the goroutine that waits for the victim's end.
func (a *agent) emptied(err error) {
	u, now := a.current, time.Now()
	if u == nil || errors.Is(err, context.Canceled) {
		return
	}
	if err != nil {
		a.log.Error("the victim does not die, set aside", append(a.describe(u.decision), "error", errors.Join(u.killErr, err))...)
		a.manager.Done(now, u.victim.Pod.UID, false)
		a.current = nil
		return
	}
	u.emptied = now
}

// progress ends the eviction under way once the memory is back, or does not come.
func (a *agent) progress(now time.Time, still []eviction.Met) {
	u := a.current
	if u.emptied.IsZero() {
		return
	}
	back := len(still) == 0
	if !back && now.Sub(u.emptied) < backLimit && !a.manager.Worse(still[0]) {
		return
	}
	fields := append(a.describe(u.decision), "crossedToKill", u.killed.Time.Sub(u.decision.Signal.Since).Round(time.Microsecond),
		"killToEmpty", u.emptied.Sub(u.killed.Time).Round(time.Microsecond))
	if back {
		fields = append(fields, "killToMemoryBack", now.Sub(u.killed.Time).Round(time.Microsecond))
	} else {
		fields = append(fields, "killToMemoryBack", "not back")
	}
	fields = append(fields, "available", a.manager.Memory(&a.node).Available,
		"killedAtMonotonic", u.killed.Monotonic, "message", u.decision.Evictions[0].Message, "ranking", a.named(u.ranking))
	if u.killErr != nil {
		fields = append(fields, "killError", u.killErr)
	}
	a.log.Info("evicted", fields...)
	a.manager.Done(u.emptied, u.victim.Pod.UID, true)
	a.current = nil
	clear(a.said)
}
