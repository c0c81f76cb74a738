package kill

import (
	"context"
	"errors"
	"slices"
	"time"
)

// sandboxes are those of the pod that the runtime knows and that are the victim's own. The
// goroutine that calls the victim's methods other than Kill, Killed, Steps and Close owns them.
// Stop lends them to a goroutine that it starts and waits for.
type sandboxes struct {
	ids     []string
	since   Stamp // when it was pinned: sandboxes made later are not its own
	settled bool  // ids are all of its sandboxes: a later look would find those of its next life
}

func (s *sandboxes) init() { s.ids = make([]string, 0, 16) }

// start takes what is known when the victim is pinned.
func (s *sandboxes) start(ids []string, at Stamp) {
	s.ids, s.since, s.settled = append(s.ids[:0], ids...), at, false
}

// has reports whether a sandbox is known as the victim's.
func (s *sandboxes) has(id string) bool { return slices.Contains(s.ids, id) }

// lookUp finds the victim's sandboxes: between the ranking and the kill the runtime may have made
// the pod's first one, or its next one. The first look that is answered counts: until a later one
// the clock may have been set and set right again, which no time tells.
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
		if !s.has(made.ID) && s.since.Monotonic > 0 && made.CreatedAt.Add(set).Before(s.since.Time) {
			s.ids = append(s.ids, made.ID)
		}
	}
	s.settled = true
	return nil
}

// clockSet is by how much the wall clock was set since the victim was chosen, forth or back: what
// the runtime says was made before by less than that may have been made after. A node without a
// clock battery is set by years while it runs.
func (s *sandboxes) clockSet() time.Duration {
	now := Now()
	wall, passed := now.Time.Round(0).Sub(s.since.Time.Round(0)), now.Monotonic-s.since.Monotonic
	return (wall - passed).Abs()
}

// setSince is Victim.Since.
func (s *sandboxes) setSince(at Stamp) { s.since = at }

// settle is Victim.Settle.
func (s *sandboxes) settle() { s.settled = true }

// Since says when the victim was chosen, where that was before it was pinned: sandboxes made later
// are not its own. To be called before anything is done to it.
func (v *Victim) Since(at Stamp) { v.sandboxes.setSince(at) }

// Settle says that the victim's sandboxes are those that are known: it is taken up again, and they
// were looked up when it was chosen.
func (v *Victim) Settle() { v.sandboxes.settle() }

// Sandboxes are those of the victim that are known by now.
func (v *Victim) Sandboxes() []string { return v.sandboxes.ids }

// ErrBack: a pod has a sandbox that is not the victim's.
var ErrBack = errors.New("the pod is back")

// Back is ErrBack where the runtime has a sandbox of the pod, in any state, that is not known as
// one of the victim's; what there is under the pod's UID, logs and volumes, is in use then. No time
// tells that, for clocks are set.
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
