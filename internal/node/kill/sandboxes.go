package kill

import (
	"context"
	"errors"
	"slices"
	"time"
)

// sandboxes lists the pod's sandboxes that belong to the victim. The goroutine that calls the
// victim's methods other than Kill, Killed, Steps and Close owns the list. Stop passes it to a
// goroutine that it starts and waits for.
type sandboxes struct {
	ids     []string
	since   Stamp // time of Pin: sandboxes created later are not the victim's
	settled bool  // ids is complete: a later list would include sandboxes of the restarted pod
}

func (s *sandboxes) init() { s.ids = make([]string, 0, 16) }

// start sets the sandboxes known when the victim is pinned.
func (s *sandboxes) start(ids []string, at Stamp) {
	s.ids, s.since, s.settled = append(s.ids[:0], ids...), at, false
}

// has reports whether the sandbox belongs to the victim.
func (s *sandboxes) has(id string) bool { return slices.Contains(s.ids, id) }

// lookUp asks the runtime for the victim's sandboxes: between the ranking and the kill the runtime
// may have created the pod's first or next one. Only the first successful answer counts, because
// clock changes before a later one may cancel out and stay undetected.
func (s *sandboxes) lookUp(ctx context.Context, r Runtime, uid string) error {
	if s.settled {
		return nil
	}
	now, err := r.SandboxesOf(ctx, uid)
	if err != nil {
		return err
	}
	set := s.clockSet()
	for i := range now {
		made := &now[i]
		if !s.has(made.ID) && s.since.Monotonic > 0 && !made.CreatedAt.IsZero() &&
			made.CreatedAt.Add(set).Before(s.since.Time) {
			s.ids = append(s.ids, made.ID)
		}
	}
	s.settled = true
	return nil
}

// clockSet returns by how much the wall clock was set, forward or back, after the victim was
// chosen. A sandbox that the runtime dates before the choice by less than that may be newer. The
// clock of a node without a clock battery jumps by years while the node runs.
func (s *sandboxes) clockSet() time.Duration {
	now := Now()
	wall, passed := now.Time.Round(0).Sub(s.since.Time.Round(0)), now.Monotonic-s.since.Monotonic
	return (wall - passed).Abs()
}

// setSince implements Victim.Since.
func (s *sandboxes) setSince(at Stamp) { s.since = at }

// settle implements Victim.Settle.
func (s *sandboxes) settle() { s.settled = true }

// Since sets the time at which the victim was chosen, if that was before Pin: sandboxes created
// later are not the victim's. Call it before any other method.
func (v *Victim) Since(at Stamp) { v.sandboxes.setSince(at) }

// Settle declares the list of the victim's sandboxes complete. An eviction that is resumed calls
// it, because the sandboxes were looked up when the victim was chosen.
func (v *Victim) Settle() { v.sandboxes.settle() }

// SetKilled declares that the kernel carried out a kill at that time. An eviction that is resumed
// calls it for a victim that an earlier process killed, so that WaitEmpty knows a dying victim.
func (v *Victim) SetKilled(at Stamp) {
	v.progress.struck.Store(int64(at.Monotonic))
	for _, p := range v.group.outside {
		if one, ok := p.(*Victim); ok {
			one.SetKilled(at)
		}
	}
}

// Sandboxes returns the IDs of the victim's sandboxes known so far.
func (v *Victim) Sandboxes() []string { return v.sandboxes.ids }

// ErrBack is returned by Back if the pod has a sandbox that is not the victim's.
var ErrBack = errors.New("the pod was restarted")

// Back returns ErrBack if the runtime has a sandbox of the pod, in any state, that is not the
// victim's. The logs and volumes under the pod's UID are in use then. Back compares IDs instead of
// creation times, because clocks may be set.
func (v *Victim) Back(ctx context.Context, r Runtime) error {
	now, err := r.SandboxesOf(ctx, v.Pod.UID)
	if err != nil {
		return err
	}
	for i := range now {
		if !v.sandboxes.has(now[i].ID) {
			return ErrBack
		}
	}
	return nil
}
