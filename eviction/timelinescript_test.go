package eviction

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// timeline is a node, its pods, and what happens to them: all that a run depends on. As text it is what a failure prints, and what
// testdata/timelines pins. Sizes are in MiB, rates in MiB (tasks) a second, times since the start. What is zero is harmless.
type timeline struct {
	Settings []string // lines of in()
	Node     nodePlan
	Pods     []podPlan
	Events   []eventPlan
}

type nodePlan struct {
	Kubelet                bool // one owns volumes and disks
	Breaker, ByRelease     bool
	Explain                bool // disks that pods do not fill cost none
	Memory, Outside        int  // all there is; what no pod has of it
	Allocatable            int  // limit of the cgroup above all pods; 0: none
	Swap, Tasks, Disk      int  // all there is of each
	Trash                  int  // that garbage collection finds on the disk
	Walk, Grain            time.Duration
	Until                  time.Duration
	OutsideTasks, OutsideD int // tasks, and MiB of disk, that no pod has
}

type podPlan struct {
	Name, QOS, NS                     string
	Request                           int
	Anon, Shm, Vol, Cache             int // Shm goes with the processes, Vol when its owner unmounts it
	Swap, Tasks, Disk                 int
	Found                             int // percent of its files that are found when they are measured; 0: all
	LeakAnon, LeakVol, LeakSwap       int
	LeakTasks, LeakDisk               int
	LeakFrom, LeakFor                 time.Duration // LeakFor 0: for ever
	From, Exit                        time.Duration // it appears; it ends by itself, 0: it does not
	Die                               time.Duration // from the kill until its memory is back, bit by bit
	Stuck                             time.Duration // one task is in D state for so long after a kill
	Held                              int           // percent of its memory that this task holds
	Refused                           bool          // the kernel refuses the kill, so the runtime does it
	Unpinned                          int           // attempts to pin it that fail
	StopAfter                         time.Duration // it ends so long after it is asked to; 0: not before it is killed
	Clean                             time.Duration // that the runtime needs to clean up
	Uncleaned, Hasty                  bool          // it never does; it says so while the pod lives
	VolFree                           time.Duration // that a kubelet needs to unmount its volumes
	VolStays, Keeps                   bool          // it never does; the pod's cgroup is there until then
	Backs                             int           // how often it comes back under its UID
	BackAfter                         time.Duration
	BackSame                          bool // in the same cgroup, with another sandbox
	Object, NoPriority, WrongName     bool // its object, as a client put it
	Priority, Limit                   int  // Limit: on local storage
	Source, Phase                     string
	PhaseAt                           time.Duration
	Static, Mirror, Self              bool // the runtime's word
	NodeCritical, Strange, Unmeasured bool
}

// eventPlan is something that happens to the node.
type eventPlan struct {
	At time.Duration
	// What: outside, tasks, disk: By is taken outside of pods within Over; clock: set by Over; restart, crash: away for Over; blind; preempt:
	// the pods that By has bits for go for a critical one.
	What string
	By   int
	Over time.Duration
}

// text writes one line for each part.
func (tl *timeline) text() string {
	var b strings.Builder
	for _, s := range tl.Settings {
		fmt.Fprintf(&b, "set %s\n", s)
	}
	fmt.Fprintf(&b, "node%s\n", fieldsText(reflect.ValueOf(tl.Node)))
	for _, p := range tl.Pods {
		fmt.Fprintf(&b, "pod%s\n", fieldsText(reflect.ValueOf(p)))
	}
	for _, e := range tl.Events {
		fmt.Fprintf(&b, "event%s\n", fieldsText(reflect.ValueOf(e)))
	}
	return b.String()
}

// fieldsText writes the fields of a struct that are not zero.
func fieldsText(v reflect.Value) string {
	var b strings.Builder
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			fmt.Fprintf(&b, " %s=%v", strings.ToLower(v.Type().Field(i).Name), v.Field(i).Interface())
		}
	}
	return b.String()
}

// parseTimeline reads what text wrote. A line that begins with # is a comment.
func parseTimeline(text string) (tl timeline, err error) {
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "", "#":
		case "set":
			tl.Settings = append(tl.Settings, rest)
		case "node":
			err = parseFields(rest, reflect.ValueOf(&tl.Node).Elem())
		case "pod":
			tl.Pods = append(tl.Pods, podPlan{})
			err = parseFields(rest, reflect.ValueOf(&tl.Pods[len(tl.Pods)-1]).Elem())
		case "event":
			tl.Events = append(tl.Events, eventPlan{})
			err = parseFields(rest, reflect.ValueOf(&tl.Events[len(tl.Events)-1]).Elem())
		default:
			err = fmt.Errorf("no part %q", key)
		}
		if err != nil {
			return tl, fmt.Errorf("line %q: %w", line, err)
		}
	}
	return tl, nil
}

func parseFields(text string, into reflect.Value) error {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		f := into.FieldByNameFunc(func(name string) bool { return strings.ToLower(name) == key })
		if !f.IsValid() {
			return fmt.Errorf("no field %q", key)
		}
		var err error
		switch f.Interface().(type) {
		case string:
			f.SetString(value)
		case bool:
			f.SetBool(value == "true")
		case int:
			var n int
			n, err = strconv.Atoi(value)
			f.SetInt(int64(n))
		case time.Duration:
			var d time.Duration
			d, err = time.ParseDuration(value)
			f.SetInt(int64(d))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
