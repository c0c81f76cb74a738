package eviction

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// timeline is a node, its pods, and its events: everything that a run depends on. A failure prints
// its text, and testdata/timelines keeps it. Sizes are in MiB, rates in MiB (tasks) per second,
// times since the start. Zero values are harmless.
type timeline struct {
	Settings []string // lines of in()
	Node     nodePlan
	Pods     []podPlan
	Events   []eventPlan
}

type nodePlan struct {
	Kubelet                bool // it owns volumes and disks
	Breaker, ByRelease     bool
	Explain                bool // disks that pods do not fill cost none
	Memory, Outside        int  // the total; the part outside of pods
	Allocatable            int  // limit of the cgroup above all pods; 0: none
	Swap, Tasks, Disk      int  // totals
	Trash                  int  // garbage on the disk
	Walk, Grain            time.Duration
	Garbage                time.Duration // that its collection takes, if longer than a walk
	Until                  time.Duration
	OutsideTasks, OutsideD int // tasks, and MiB of disk, outside of pods
}

type podPlan struct {
	Name, QOS, NS string
	Request       int
	// Shm ends with the processes, Vol when its owner unmounts it
	Anon, Shm, Vol, Cache       int
	Swap, Tasks, Disk           int
	Found                       int  // percent of its files that a walk finds; 0: all
	Cut, NoDisk                 bool // every walk is cut off where the first one ended; its files are never measured
	Overwrites                  int  // MiB per second that it writes to files that do not grow
	NoIO                        bool // the kernel does not count what it writes
	LeakAnon, LeakVol, LeakSwap int
	LeakTasks, LeakDisk         int
	LeakFrom, LeakFor           time.Duration // LeakFor 0: forever
	From, Exit                  time.Duration // it starts; it ends by itself, 0: never
	// from the kill until its memory has returned, bit by bit
	Die time.Duration
	// one task is in D state for that long after a kill
	Stuck time.Duration
	Held  int // percent of its memory that this task holds
	// the kernel refuses the kill, so the runtime carries it out
	Refused  bool
	Unpinned int // attempts to pin it that fail
	// time from the request to stop until it ends; 0: only by a kill
	StopAfter                     time.Duration
	Clean                         time.Duration // time that the runtime needs to clean up
	Uncleaned, Hasty              bool          // it never does; it reports so while the pod lives
	VolFree                       time.Duration // time that a kubelet needs to unmount its volumes
	VolStays, Keeps               bool          // it never does; the pod's cgroup exists until then
	Backs                         int           // number of restarts under its UID
	BackAfter                     time.Duration
	BackSame                      bool // in the same cgroup, with another sandbox
	Object, NoPriority, WrongName bool // its object, as a client put it
	// Resize is the request of its spec after a resize that the kubelet does not grant; 0: none.
	// Status: the object has the kubelet's allocation.
	Resize                            int
	Status                            bool
	Priority, Limit                   int // Limit: on local storage
	Source, Phase                     string
	PhaseAt                           time.Duration
	Static, Mirror, Self              bool // reported by the runtime
	NodeCritical, Strange, Unmeasured bool
	Split                             string // where its containers run; empty: below its cgroup
}

// eventPlan is an event on the node.
type eventPlan struct {
	At time.Duration
	// What: outside, tasks, disk: By is taken outside of pods within Over; clock: set by Over;
	// restart, crash: the agent is down for Over; blind; preempt: the pods that By has bits for are
	// preempted.
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

// parseTimeline reads the result of text. A line that begins with # is a comment.
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
