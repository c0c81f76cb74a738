package records

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/base/atomicfile"
	"jettison/stats"
)

// StateFile is the name of the State's file below the state directory.
const StateFile = "state.json"

// Limits of a State.
const (
	maxState       = 2 << 20
	maxHoldOffs    = 1024            // as nri.HoldOffs
	maxHoldOff     = 5 * time.Minute // from the time of the read
	maxDescheduled = 1000            // as nodedescheduler remembers
	// bytes at the end of the records that are searched for running evictions
	runningTail = 256 << 10
)

// StateVersion is the format version of a State. Adding a field does not change it. The previous
// version is read too.
const StateVersion = 2

// State is the state that the next process needs to continue. All times are absolute.
type State struct {
	Version  int            `json:"version"`
	BootID   string         `json:"bootId"`
	Time     time.Time      `json:"time"` // of the write
	Manager  eviction.Saved `json:"manager"`
	HoldOffs []HoldOff      `json:"holdOffs,omitempty"`
	// Descheduled are the pods that the node's descheduler stopped lately, sorted by UID.
	Descheduled []Descheduled `json:"descheduled,omitempty"`
}

// Descheduled is a pod that the node's descheduler stopped.
type Descheduled struct {
	UID string    `json:"uid"`
	At  time.Time `json:"at"`
}

// HoldOff rejects restarts of a pod for a time. Without a UID it rejects the pods that the owner
// creates as replacement.
type HoldOff struct {
	UID    string    `json:"uid,omitempty"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	Times  int       `json:"times"`
	// the hold-off lasts while this resource is short; empty: unknown, it ends at Until
	Signal stats.Signal `json:"signal,omitempty"`
	Owner  Owner        `json:"owner,omitzero"`
}

// Owner identifies the controller that replaces a pod under another UID: the controller's kind and
// UID, and the pod's namespace and name.
type Owner struct {
	Kind      string `json:"kind"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// valid reports whether o can be a saved Owner.
func (o *Owner) valid() bool {
	for _, text := range []string{o.Kind, o.UID, o.Namespace, o.Name} {
		if text != oneLine(text, maxName) || strings.ContainsAny(text, " /") {
			return false
		}
	}
	return *o == Owner{} || o.Kind != "" && ValidID(o.UID)
}

// runningRecords returns the records with outcome running.
func runningRecords(kept []api.Record) (running []api.Record) {
	for _, r := range kept {
		if r.Outcome == api.OutcomeRunning {
			running = append(running, r)
		}
	}
	return running
}

// Load reads the State and the records that the previous process left in a state directory. It
// never fails: it leaves out missing, corrupt and implausible parts, with one warning each. From
// another boot it keeps only hold-offs and descheduled pods, because the cgroups of that boot are
// gone and their IDs may be reused. boot comes from package bootid. eviction's Resume checks State.Manager.
func Load(dir string, now time.Time, boot string) (s State, kept []api.Record, warnings []error) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Errorf(format, args...))
	}
	path := filepath.Join(dir, StateFile)
	warnState := func(format string, args ...any) { warn(path+": "+format, args...) }
	switch text, err := atomicfile.Read(path, maxState, unix.O_NOFOLLOW); {
	case errors.Is(err, os.ErrNotExist): // the first start
	case err != nil:
		warn("read %s: %w (starting with empty state)", path, errors.Unwrap(err))
	default:
		if s, err = parseState(text, warnState); err != nil {
			warn("parse %s: %w (starting with empty state)", path, err)
			s = State{}
		}
	}
	if boot == "" || s.BootID != boot {
		s.Manager = eviction.Saved{}
	}
	s.check(now, warnState)
	path = Path(dir)
	list, err := readTail(path, runningTail)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			warn("read records: %w", err)
		}
		return s, nil, warnings
	}
	s.recall(runningRecords(list.Records))
	return s, list.Records, warnings
}

func parseState(text []byte, warn func(string, ...any)) (s State, err error) {
	var old state1
	var version struct {
		Version int `json:"version"`
	}
	into := any(&s)
	if err = json.Unmarshal(text, &version); err == nil && version.Version == 1 {
		into = &old
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	switch {
	case err != nil:
		return State{}, errors.New(oneLine(err.Error(), 256))
	case version.Version == 1:
		return old.migrate(warn), nil
	case version.Version != StateVersion:
		return State{}, fmt.Errorf("unsupported version %d, want %d", version.Version, StateVersion)
	}
	return s, nil
}

// check removes implausible parts and clamps times too far in the future. eviction's Resume reports
// problems of the evictions themselves.
func (s *State) check(now time.Time, warn func(string, ...any)) {
	s.Manager.Lives = slices.DeleteFunc(s.Manager.Lives, func(l eviction.SavedLife) bool {
		wrong := l.Record != "" && !ValidID(l.Record)
		if wrong {
			warn("eviction with invalid record ID %.64q ignored", l.Record)
		}
		return wrong
	})
	var holds []HoldOff
	held := map[string]bool{}
	for i, h := range s.HoldOffs {
		if len(holds) == maxHoldOffs {
			warn("%d hold-offs over the limit ignored", len(s.HoldOffs)-i)
			break
		}
		key := h.UID
		if key == "" && h.Owner != (Owner{}) {
			key = fmt.Sprint(h.Owner)
		} else if !ValidID(key) {
			key = ""
		}
		if key == "" || held[key] || !h.Owner.valid() {
			warn("hold-off of UID %.64q ignored: invalid or duplicate", cmp.Or(h.UID, h.Owner.UID))
			continue
		}
		if !now.Before(h.Until) {
			continue
		}
		if most := now.Add(maxHoldOff); h.Until.After(most) {
			warn("hold-off of pod %s ends too late, at %s: reduced to %v from now", h.UID,
				h.Until.Format(time.RFC3339), maxHoldOff)
			h.Until = most
		}
		held[key] = true
		h.Reason, h.Times = oneLine(h.Reason, 256), min(max(h.Times, 1), maxRecords)
		// a signal without a threshold never prolongs the hold-off
		h.Signal = stats.Signal(oneLine(string(h.Signal), 64))
		holds = append(holds, h)
	}
	s.HoldOffs = holds
	s.checkDescheduled(now, warn)
}

// checkDescheduled removes implausible entries of Descheduled.
func (s *State) checkDescheduled(now time.Time, warn func(string, ...any)) {
	if more := len(s.Descheduled) - maxDescheduled; more > 0 {
		warn("%d descheduled pods over the limit ignored", more)
		s.Descheduled = s.Descheduled[:maxDescheduled]
	}
	s.Descheduled = slices.DeleteFunc(s.Descheduled, func(d Descheduled) bool {
		wrong := !ValidID(d.UID) || d.At.IsZero()
		if wrong {
			warn("descheduled pod %.64q ignored: invalid", d.UID)
		}
		return wrong
	})
	for i := range s.Descheduled { // the clock was set back
		if d := &s.Descheduled[i]; d.At.After(now) {
			d.At = now
		}
	}
}

// encode returns the content of the State's file.
func (s *State) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	if b.Len() > maxState {
		return nil, fmt.Errorf("encode state: %d bytes exceed the limit of %d", b.Len(), maxState)
	}
	return b.Bytes(), nil
}
