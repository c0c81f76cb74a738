package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"jettison/eviction"
	"jettison/internal/wholefile"
	"jettison/stats"
)

// StateFile is the name of the file of the State below the state directory.
const StateFile = "state.json"

// Bounds of a State.
const (
	maxState    = 2 << 20
	maxUnderway = 128
	maxHoldOffs = 1024            // as nri.HoldOffs
	maxHoldOff  = 5 * time.Minute // from now, when it is read
	runningTail = 256 << 10       // how much of the end of the records is searched for those that are running
)

// State is what the next process needs to go on where this one was. All times are absolute.
type State struct {
	Version   int            `json:"version"`
	BootID    string         `json:"bootId"`
	Time      time.Time      `json:"time"` // when it was written
	Evictions []Underway     `json:"evictions,omitempty"`
	Manager   eviction.Saved `json:"manager"`
	HoldOffs  []HoldOff      `json:"holdOffs,omitempty"`
}

// Underway is an eviction that is not over for the agent: the pod lives, or the runtime has not cleaned up.
type Underway struct {
	Record      string                 `json:"record"` // its ID
	Eviction    eviction.SavedEviction `json:"eviction"`
	Began       Stamp                  `json:"began"`
	Killed      Stamp                  `json:"killed,omitzero"`   // zero: it is in its grace period
	Deadline    time.Time              `json:"deadline,omitzero"` // the end of that
	Emptied     Stamp                  `json:"emptied,omitzero"`  // zero: not known to be dead
	RemoveFiles bool                   `json:"removeFiles,omitempty"`
}

// HoldOff is a pod that is not let in again for a while.
type HoldOff struct {
	UID    string       `json:"uid"`
	Until  time.Time    `json:"until"`
	Reason string       `json:"reason,omitempty"`
	Times  int          `json:"times"`
	Signal stats.Signal `json:"signal,omitempty"` // the hold-off lasts as long as that is short; empty: not known, so it ends with Until
}

// Load reads what the process before this one has left in a state directory: its State, and the records that say that their eviction
// is running. It never fails: what is missing, corrupt or cannot be true is left out, each with one warning, and what is left is a fresh
// start. Of another boot only hold-offs count: its cgroups are gone, and their identities may have been given to others since. boot is
// of package bootid; State.Manager is checked by eviction's Resume.
func Load(dir string, now time.Time, boot string) (s State, running []Record, warnings []error) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Errorf(format, args...)) }
	path := filepath.Join(dir, StateFile)
	switch text, err := wholefile.Read(path, maxState, unix.O_NOFOLLOW); {
	case errors.Is(err, os.ErrNotExist): // the first start
	case err != nil:
		warn("%s cannot be read, starting afresh: %w", path, errors.Unwrap(err))
	default:
		if s, err = parseState(text); err != nil {
			warn("%s is no state, starting afresh: %w", path, err)
			s = State{}
		}
	}
	if boot == "" || s.BootID != boot {
		s.Evictions, s.Manager = nil, eviction.Saved{}
	}
	s.check(now, func(format string, args ...any) { warn(path+": "+format, args...) })
	path = Path(dir)
	list, err := readTail(path, runningTail)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			warn("%s cannot be read: %w", path, err)
		}
		return s, nil, warnings
	}
	for _, r := range list.Records {
		if r.Outcome == Running {
			running = append(running, r)
		}
	}
	return s, running, warnings
}

func parseState(text []byte) (s State, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, errors.New(oneLine(err.Error(), 256))
	}
	if s.Version != Version {
		return State{}, fmt.Errorf("version %d, want %d", s.Version, Version)
	}
	return s, nil
}

// check leaves out what cannot be true, and clamps what is too far in the future.
func (s *State) check(now time.Time, warn func(string, ...any)) {
	var evictions []Underway
	seen := map[string]bool{}
	for i, u := range s.Evictions {
		e, err := u.Eviction.Eviction()
		switch {
		case err == nil && seen[e.Pod.PodRef.UID]:
			err = fmt.Errorf("pod %s comes twice", e.Pod.PodRef.UID)
		case err == nil && u.Record != "" && !validID(u.Record):
			err = fmt.Errorf("%.64q is no ID of a record", u.Record)
		}
		if len(evictions) == maxUnderway {
			warn("%d evictions too many", len(s.Evictions)-i)
			break
		}
		if err != nil {
			warn("an eviction: %w", err)
			continue
		}
		seen[e.Pod.PodRef.UID] = true
		for _, at := range []*Stamp{&u.Began, &u.Killed, &u.Emptied} {
			if at.Monotonic = max(at.Monotonic, 0); at.Time.After(now) {
				at.Time = now
			}
		}
		if most := now.Add(time.Duration(e.GracePeriodSeconds) * time.Second); u.Deadline.After(most) {
			warn("the grace period of pod %s ends at %s, which is too far: %d s from now", e.Pod.PodRef.UID, u.Deadline.Format(time.RFC3339), e.GracePeriodSeconds)
			u.Deadline = most
		}
		evictions = append(evictions, u)
	}
	s.Evictions = evictions
	s.Manager.Pending = slices.DeleteFunc(s.Manager.Pending, func(p eviction.SavedPending) bool {
		lost := !p.Died && !seen[p.Eviction.Pod.UID]
		if lost { // others would wait for it for ever
			warn("the eviction of pod %.64q is awaited, and nobody carries it out", p.Eviction.Pod.UID)
		}
		return lost
	})
	var holds []HoldOff
	held := map[string]bool{}
	for i, h := range s.HoldOffs {
		if len(holds) == maxHoldOffs {
			warn("%d hold-offs too many", len(s.HoldOffs)-i)
			break
		}
		if !validID(h.UID) || held[h.UID] {
			warn("a hold-off of %.64q, which is no UID or comes twice", h.UID)
			continue
		}
		if !now.Before(h.Until) {
			continue
		}
		if most := now.Add(maxHoldOff); h.Until.After(most) {
			warn("the hold-off of pod %s ends at %s, which is too far: %v from now", h.UID, h.Until.Format(time.RFC3339), maxHoldOff)
			h.Until = most
		}
		held[h.UID] = true
		h.Reason, h.Times = oneLine(h.Reason, 256), min(max(h.Times, 1), maxRecords)
		h.Signal = stats.Signal(oneLine(string(h.Signal), 64)) // one that no threshold is for never lasts longer
		holds = append(holds, h)
	}
	s.HoldOffs = holds
}

// encode makes the file of a State.
func (s *State) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("state: encoding: %w", err)
	}
	if b.Len() > maxState {
		return nil, fmt.Errorf("state: %d bytes, more than a reader takes", b.Len())
	}
	return b.Bytes(), nil
}
