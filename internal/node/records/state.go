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

// StateFile is the name of the file of the State below the state directory.
const StateFile = "state.json"

// Bounds of a State.
const (
	maxState    = 2 << 20
	maxHoldOffs = 1024            // as nri.HoldOffs
	maxHoldOff  = 5 * time.Minute // from now, when it is read
	// how much of the end of the records is searched for those that are running
	runningTail = 256 << 10
)

// StateVersion is that of a State's format. A field may be added without a new one. The one before
// is read, too.
const StateVersion = 2

// State is what the next process needs to go on where this one was. All times are absolute.
type State struct {
	Version  int            `json:"version"`
	BootID   string         `json:"bootId"`
	Time     time.Time      `json:"time"` // when it was written
	Manager  eviction.Saved `json:"manager"`
	HoldOffs []HoldOff      `json:"holdOffs,omitempty"`
}

// HoldOff is a pod that is not let in again for a while; without a UID those that an owner makes in
// its place.
type HoldOff struct {
	UID    string    `json:"uid,omitempty"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	Times  int       `json:"times"`
	// the hold-off lasts as long as that is short; empty: not known, so it ends with Until
	Signal stats.Signal `json:"signal,omitempty"`
	Owner  Owner        `json:"owner,omitzero"`
}

// Owner is what brings a pod back under another UID: the controller's kind and UID, the pod's
// namespace and name.
type Owner struct {
	Kind      string `json:"kind"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// valid tells what can be one that was saved.
func (o *Owner) valid() bool {
	for _, text := range []string{o.Kind, o.UID, o.Namespace, o.Name} {
		if text != oneLine(text, maxName) || strings.ContainsAny(text, " /") {
			return false
		}
	}
	return *o == Owner{} || o.Kind != "" && ValidID(o.UID)
}

// stillRunning are those of records that say that their eviction is.
func stillRunning(kept []api.Record) (running []api.Record) {
	for _, r := range kept {
		if r.Outcome == api.OutcomeRunning {
			running = append(running, r)
		}
	}
	return running
}

// Load reads what the process before this one has left in a state directory: its State, and its
// records. It never fails: what is missing, corrupt or cannot be true is left out, each with one
// warning, and what is left is a fresh start. Of another boot only hold-offs count: its cgroups are
// gone, and their identities may have been given to others since. boot is of package bootid;
// State.Manager is checked by eviction's Resume.
func Load(dir string, now time.Time, boot string) (s State, kept []api.Record, warnings []error) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Errorf(format, args...))
	}
	path := filepath.Join(dir, StateFile)
	said := func(format string, args ...any) { warn(path+": "+format, args...) }
	switch text, err := atomicfile.Read(path, maxState, unix.O_NOFOLLOW); {
	case errors.Is(err, os.ErrNotExist): // the first start
	case err != nil:
		warn("%s cannot be read, starting afresh: %w", path, errors.Unwrap(err))
	default:
		if s, err = parseState(text, said); err != nil {
			warn("%s is no state, starting afresh: %w", path, err)
			s = State{}
		}
	}
	if boot == "" || s.BootID != boot {
		s.Manager = eviction.Saved{}
	}
	s.check(now, said)
	path = Path(dir)
	list, err := readTail(path, runningTail)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			warn("%s cannot be read: %w", path, err)
		}
		return s, nil, warnings
	}
	s.recall(stillRunning(list.Records))
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
		return State{}, fmt.Errorf("version %d, want %d", version.Version, StateVersion)
	}
	return s, nil
}

// check leaves out what cannot be true, and clamps what is too far in the future. What is wrong
// with an eviction itself its Resume says.
func (s *State) check(now time.Time, warn func(string, ...any)) {
	s.Manager.Lives = slices.DeleteFunc(s.Manager.Lives, func(l eviction.SavedLife) bool {
		wrong := l.Record != "" && !ValidID(l.Record)
		if wrong {
			warn("an eviction: %.64q is no ID of a record", l.Record)
		}
		return wrong
	})
	var holds []HoldOff
	held := map[string]bool{}
	for i, h := range s.HoldOffs {
		if len(holds) == maxHoldOffs {
			warn("%d hold-offs too many", len(s.HoldOffs)-i)
			break
		}
		key := h.UID
		if key == "" && h.Owner != (Owner{}) {
			key = fmt.Sprint(h.Owner)
		} else if !ValidID(key) {
			key = ""
		}
		if key == "" || held[key] || !h.Owner.valid() {
			warn("a hold-off of %.64q, which is no UID or comes twice", cmp.Or(h.UID, h.Owner.UID))
			continue
		}
		if !now.Before(h.Until) {
			continue
		}
		if most := now.Add(maxHoldOff); h.Until.After(most) {
			warn("the hold-off of pod %s ends at %s, which is too far: %v from now", h.UID,
				h.Until.Format(time.RFC3339), maxHoldOff)
			h.Until = most
		}
		held[key] = true
		h.Reason, h.Times = oneLine(h.Reason, 256), min(max(h.Times, 1), maxRecords)
		// one that no threshold is for never lasts longer
		h.Signal = stats.Signal(oneLine(string(h.Signal), 64))
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
