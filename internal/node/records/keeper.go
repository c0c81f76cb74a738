package records

import (
	"cmp"
	"os"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/bootid"
)

// closeLimit bounds the write of the last records when the agent ends.
const closeLimit = time.Second

// Keeper is the loop's side: it passes records and state to a Writer, which has its own goroutine,
// and keeps the last records in memory for readers. The methods of a nil Keeper do nothing.
type Keeper struct {
	writer *Writer // nil: nothing is written
	agent  string  // version of the agent
	// dry run: records are kept, but no state for a restart
	dry     bool
	bootID  string
	changed bool // the state for a restart has changed since the last Save
	queue   *Queue
}

// KeeperOptions of StartKeeper.
type KeeperOptions struct {
	Dir  string // empty: records go to the kernel log only
	Proc string // mount point of /proc
	// Agent is the version of the agent.
	Agent string
	Log   *logthrottle.Logger
	// Queue serves readers. nil: no readers.
	Queue *Queue
	// DryRun makes the Keeper read no earlier state, save none, and write no line to the kernel log.
	DryRun bool
}

// StartKeeper starts to write records and state. It returns the state and the running evictions
// that the previous process left, or nothing while another process has locked the directory. Call
// Close at the end.
func StartKeeper(now time.Time, o KeeperOptions) (k *Keeper, state State, running []api.Record) {
	k = &Keeper{bootID: bootid.Read(o.Proc), agent: o.Agent, dry: o.DryRun,
		queue: cmp.Or(o.Queue, NewQueue())}
	kmsg := Kmsg
	if o.DryRun {
		kmsg = os.DevNull
	}
	log := o.Log.Logger // the Writer's goroutine calls Report
	writer, err := Start(Options{Dir: o.Dir, Kmsg: kmsg, BootID: k.bootID, Agent: o.Agent,
		Report: func(n Notice) {
			if n.Err != nil {
				//log: The agent could not write eviction records, its state, or a line of the kernel log.
				//  The key `what` names the target. The agent retries, and evictions continue. Records are
				//  kept in memory, and the oldest are lost if there are too many.
				//do: Fix the cause in the key error, for example a full disk below stateDir.
				log.Warn("record keeping failed, will retry", "what", n.What, "error", n.Err)
				return
			}
			//log: The agent can write its eviction records, its state or the kernel log again. The key lost
			//  is the number of records that were lost in the meantime.
			log.Info("record keeping works again", "what", n.What, "lost", n.Lost)
		}})
	if o.Dir != "" && !o.DryRun && (err != nil || writer.LockedByOther() == nil) {
		var warnings []error
		var kept []api.Record
		state, kept, warnings = Load(o.Dir, now, k.bootID)
		for _, err := range warnings {
			//log: A part of the state or of the records that the previous agent process left is missing,
			//  corrupt or implausible. The agent ignores that part. Evictions in progress or hold-offs may
			//  be forgotten.
			//do: Read the key error. Check the disk if files are corrupt.
			o.Log.Warn("saved state incomplete", "error", err)
		}
		running = runningRecords(kept)
		k.queue.start(now, kept, Path(o.Dir), writer)
	} else {
		k.queue.start(now, nil, "", nil)
	}
	if err != nil {
		//log: The agent could not start to write records and state. Evictions work, but leave no records,
		//  and a restart forgets evictions in progress.
		//do: Fix the cause in the key error, and restart the agent.
		o.Log.Warn("records and state disabled", "error", err)
		return k, state, running
	}
	k.writer = writer
	return k, state, running
}

// Keeps reports whether records are kept at all.
func (k *Keeper) Keeps() bool { return k != nil }

// writes reports whether records are written.
func (k *Keeper) writes() bool { return k != nil && k.writer != nil }

// LockedByOther returns an error that names the other agent with a lock on the directory; nil: none.
func (k *Keeper) LockedByOther() error {
	if !k.writes() {
		return nil
	}
	return k.writer.LockedByOther()
}

// RecordDryRun keeps the record of an eviction that a dry run would have begun.
func (k *Keeper) RecordDryRun(r *api.Record) {
	if k.Keeps() && k.dry {
		r.DryRun, r.Outcome, r.Complete = true, api.OutcomeDryRun, true
		k.Update(r)
	}
}

// Begin keeps the record of an eviction that has begun, and writes a line to the kernel log.
func (k *Keeper) Begin(r *api.Record) {
	if !k.Keeps() {
		return
	}
	k.changed = true
	k.publish(r)
	if k.writes() {
		k.writer.Begin(*r)
	}
}

// Update replaces a record.
func (k *Keeper) Update(r *api.Record) {
	if !k.Keeps() {
		return
	}
	k.publish(r)
	if k.writes() {
		k.writer.Update(*r)
	}
}

// Publish publishes a record to readers without writing it, because another update follows soon.
func (k *Keeper) Publish(r *api.Record) {
	if k.Keeps() {
		k.publish(r)
	}
}

// Recent returns the last records, oldest first. The records are never modified.
func (k *Keeper) Recent() (out []*api.Record) {
	if k.Keeps() {
		out, _ = k.queue.Recent()
	}
	return out
}

// publish makes a record available to readers.
func (k *Keeper) publish(r *api.Record) {
	now := *r
	now.BootID, now.Agent = k.bootID, k.agent
	k.queue.put(now)
}

// Changed marks the state for a restart as changed, so that Save writes it.
func (k *Keeper) Changed() {
	if k != nil {
		k.changed = true
	}
}

// Save passes the state for the next process to the Writer, if it has changed. fill completes a
// state that already has its version, boot and time.
func (k *Keeper) Save(now time.Time, fill func(*State)) {
	if !k.writes() || k.dry || !k.changed {
		return
	}
	k.changed = false
	s := State{Version: StateVersion, BootID: k.bootID, Time: now}
	fill(&s)
	k.writer.Save(s)
}

// Dropped returns the number of records lost since the start. Any goroutine may call it.
func (k *Keeper) Dropped() uint64 {
	if !k.writes() {
		return 0
	}
	return k.writer.dropped.Load()
}

// Close writes the pending records and the state, for closeLimit at most.
func (k *Keeper) Close() error {
	if !k.writes() {
		return nil
	}
	return k.writer.Close(closeLimit)
}
