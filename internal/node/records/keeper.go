package records

import (
	"cmp"
	"os"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/bootid"
)

// closeLimit is how long the last records may take to be written when the agent ends.
const closeLimit = time.Second

// Keeper is the loop's part: it hands records and state over to a Writer, which has a goroutine of
// its own, and has the last records at hand for readers. The methods of a nil Keeper do nothing.
type Keeper struct {
	writer *Writer // nil: nothing is kept
	agent  string  // its version
	// of a dry run: it keeps what would have been done, and nothing that a restart needs
	dry     bool
	bootID  string
	changed bool // what a restart needs has changed since it was saved
	queue   *Queue
}

// KeeperOptions of StartKeeper.
type KeeperOptions struct {
	Dir  string // empty: only the kernel's log gets records
	Proc string // where /proc is mounted
	// Agent is its version.
	Agent string
	Log   *logthrottle.Logger
	// Queue is for readers. nil: there are none.
	Queue *Queue
	// DryRun: nothing is taken over from the process before this one, nothing is left to the next, and
	// the kernel's log gets no line.
	DryRun bool
}

// StartKeeper begins to write records and state, and returns what the process before this one has
// left; nothing, while another one keeps its own there. Close it.
func StartKeeper(now time.Time, o KeeperOptions) (k *Keeper, state State, running []api.Record) {
	k = &Keeper{bootID: bootid.Read(o.Proc), agent: o.Agent, dry: o.DryRun,
		queue: cmp.Or(o.Queue, NewQueue())}
	kmsg := Kmsg
	if o.DryRun {
		kmsg = os.DevNull
	}
	log := o.Log.Logger // the writer's goroutine reports
	writer, err := Start(Options{Dir: o.Dir, Kmsg: kmsg, BootID: k.bootID, Agent: o.Agent,
		Report: func(n Notice) {
			if n.Err != nil {
				log.Warn("not kept", "what", n.What, "error", n.Err)
				return
			}
			log.Info("kept again", "what", n.What, "lost", n.Lost)
		}})
	if o.Dir != "" && !o.DryRun && (err != nil || writer.Foreign() == nil) {
		var warnings []error
		var kept []api.Record
		state, kept, warnings = Load(o.Dir, now, k.bootID)
		for _, err := range warnings {
			o.Log.Warn("what was kept is not whole", "error", err)
		}
		running = stillRunning(kept)
		k.queue.start(now, kept, Path(o.Dir), writer)
	} else {
		k.queue.start(now, nil, "", nil)
	}
	if err != nil {
		o.Log.Warn("neither records nor state are kept", "error", err)
		return k, state, running
	}
	k.writer = writer
	return k, state, running
}

// Keeps reports whether records are wanted.
func (k *Keeper) Keeps() bool { return k != nil }

// writes reports whether they are written down.
func (k *Keeper) writes() bool { return k != nil && k.writer != nil }

// Foreign says which other agent keeps its records and state there; nil: none does.
func (k *Keeper) Foreign() error {
	if !k.writes() {
		return nil
	}
	return k.writer.Foreign()
}

// Would keeps what a dry run would have done.
func (k *Keeper) Would(r *api.Record) {
	if k.Keeps() && k.dry {
		r.DryRun, r.Outcome, r.Over = true, api.OutcomeDryRun, true
		k.Update(r)
	}
}

// Begin keeps that an eviction has begun, Update what became of it.
func (k *Keeper) Begin(r *api.Record) {
	if !k.Keeps() {
		return
	}
	k.changed = true
	k.remember(r)
	if k.writes() {
		k.writer.Begin(*r)
	}
}

// Update keeps a record anew.
func (k *Keeper) Update(r *api.Record) {
	if !k.Keeps() {
		return
	}
	k.remember(r)
	if k.writes() {
		k.writer.Update(*r)
	}
}

// Tell tells readers of a record as it is now, and writes it not: more is to come soon.
func (k *Keeper) Tell(r *api.Record) {
	if k.Keeps() {
		k.remember(r)
	}
}

// Recent are the last records, oldest first. Nothing of it is ever written again.
func (k *Keeper) Recent() (out []*api.Record) {
	if k.Keeps() {
		out, _ = k.queue.Recent()
	}
	return out
}

// remember has a record at hand for readers.
func (k *Keeper) remember(r *api.Record) {
	now := *r
	now.BootID, now.Agent = k.bootID, k.agent
	k.queue.put(now)
}

// Changed tells that what a restart needs is something else now.
func (k *Keeper) Changed() {
	if k != nil {
		k.changed = true
	}
}

// Save hands over what the next process needs, if that has changed. fill completes a state that has
// its version, boot and time.
func (k *Keeper) Save(now time.Time, fill func(*State)) {
	if !k.writes() || k.dry || !k.changed {
		return
	}
	k.changed = false
	s := State{Version: StateVersion, BootID: k.bootID, Time: now}
	fill(&s)
	k.writer.Save(s)
}

// Dropped is how many records were given up since the start. It is for any goroutine.
func (k *Keeper) Dropped() uint64 {
	if !k.writes() {
		return 0
	}
	return k.writer.dropped.Load()
}

// Close writes what was handed over, which may take a second.
func (k *Keeper) Close() error {
	if !k.writes() {
		return nil
	}
	return k.writer.Close(closeLimit)
}
