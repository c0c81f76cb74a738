package metrics

// Family is a family of metrics. A histogram is in seconds.
type Family struct {
	Name    string // with what all have before them: Prefix
	Type    string // gauge, counter or histogram
	Labels  string // separated by commas
	Meaning string
}

// Prefix is before the names of families but process_ and go_, whose names are those of every
// program.
const Prefix = "jettison_"

const signalLabel = "eviction_signal"

// Families are all, in the order in which they are written. docs/reference/metrics.md is made of
// them.
var Families = []Family{
	{"build_info", "gauge", "version,goversion", "1, of the version that runs."},
	{"mode_info", "gauge", "beside_kubelet,disk,gc,dry_run,pods",
		"1, of how the agent works: whether a kubelet is on the node, and whether signals of disks and " +
			"garbage collection act or observe."},
	{"signal_available_bytes", "gauge", signalLabel,
		"What is available of a signal that has a threshold, as last observed."},
	{"signal_available_inodes", "gauge", signalLabel, "Likewise, of inodes."},
	{"signal_available_tasks", "gauge", signalLabel, "Likewise, of tasks (threads)."},
	{"signal_available_ratio", "gauge", signalLabel,
		"Of a signal of pressure the share of time in which tasks did not stall."},
	{"signal_capacity_bytes", "gauge", signalLabel, "What percentages of thresholds refer to."},
	{"signal_capacity_inodes", "gauge", signalLabel, "Likewise, of inodes."},
	{"signal_capacity_tasks", "gauge", signalLabel, "Likewise, of tasks (threads)."},
	{"threshold_bytes", "gauge", signalLabel + ",kind",
		"A threshold, hard or soft: with less available it is met."},
	{"threshold_inodes", "gauge", signalLabel + ",kind", "Likewise, of inodes."},
	{"threshold_tasks", "gauge", signalLabel + ",kind", "Likewise, of tasks (threads)."},
	{"threshold_ratio", "gauge", signalLabel + ",kind",
		"Of a signal of pressure, as signal_available_ratio has it."},
	{"pressure_stalled_ratio", "gauge", "resource,kind,window",
		"Share of time in which tasks of the node stalled (PSI), by the kernel's average over 10 s, 1 and 5 minutes."},
	{"threshold_met", "gauge", signalLabel,
		"1 while a threshold of the signal is met, grace periods not counted."},
	{"condition_status", "gauge", "condition", "1 while a condition of the node is true."},
	{"signal_observed", "gauge", signalLabel,
		"0 while a signal that has a threshold cannot be observed, so that the threshold does nothing. " +
			"Of what the node does not have, as " +
			"swap, there is none."},
	{"headroom_needed_bytes", "gauge", "",
		"The smallest hard threshold of memory.available that is safe on this node, as measured."},
	{"source_up", "gauge", "source", "0 while something that signals are made of cannot be read."},
	{"source_last_success_timestamp_seconds", "gauge", "source",
		"When it was last read, if it ever was."},
	{"source_errors_total", "counter", "source", "Attempts to read it that failed."},
	{"evictions_total", "counter", signalLabel + ",outcome,qos_class,dry_run",
		"Evictions whose outcome is known: back, notBack, undying; dryRun: nothing was done. A pod " +
			"that did not die and is tried again counts " +
			"again."},
	{"evictions_in_progress", "gauge", "", "Evictions that are not over."},
	{"eviction_crossing_to_kill_seconds", "histogram", "",
		"From the reading that met a hard threshold first to the kill."},
	{"eviction_kill_to_recovery_seconds", "histogram", "",
		"From the kill, or the stop, until enough was available again."},
	{"eviction_predicted_bytes_total", "counter", "",
		"Bytes that ends of pods were expected to return, of evictions for bytes."},
	{"eviction_released_bytes_total", "counter", "", "Bytes that they returned."},
	{"kill_step_errors_total", "counter", "step",
		"Steps of the kill ladder that failed, wholly or in part."},
	{"pods", "gauge", "state",
		"Pods that the runtime lists (listed); of which a client or a manifest told (with_object), or " +
			"only a client (with_client_object), " +
			"and that one was not heard for five minutes (with_stale_object); " +
			"that run and are of unknown priority (priority_unknown), those of them that nothing else " +
			"protects (unprotected), or never " +
			"victims (protected); that are kept out (held_off); that hit a memory limit of their own just now (at_own_limit)."},
	{"breaker_open", "gauge", "", "1 while evictions are stopped because they did not help."},
	{"gate_decisions_total", "counter", "decision,reason",
		"Answers to the runtime: pods that were admitted, refused, or observed (they would have been " +
			"refused), with the kubelet's first " +
			"reason; let in because the node was unknown; held_off after an eviction, containers included."},
	{"preemptions_total", "counter", "outcome",
		"Times that pods were stopped for a critical one: there was room (made), or not (failed)."},
	{"memory_reclaim_asked_bytes_total", "counter", "",
		"Cold memory of pods that the kernel was asked to take."},
	{"memory_reclaim_freed_bytes_total", "counter", "",
		"Memory by which the pods that were asked shrank."},
	{"memory_reclaim_refaulted_bytes_total", "counter", "",
		"Memory that they read in again soon after."},
	{"gc_removed_total", "counter", "kind", "Things that garbage collection removed."},
	{"gc_freed_bytes_total", "counter", "kind",
		"Bytes that the file systems had more after passes that removed something."},
	{"gc_failed_total", "counter", "kind", "Things that could not be removed."},
	{"gc_duration_seconds", "histogram", "kind", "How long passes took that were made."},
	{"gc_last_success_timestamp_seconds", "gauge", "kind",
		"When a pass was last over in which nothing failed."},
	{"look_delay_seconds", "histogram", "",
		"How much later than it was due a look at the node was made."},
	{"looks_total", "counter", "kind",
		"Looks at the node (cheap, slow) and at its pods (victims: a little of all, more of those that may be first; full)."},
	{"wakeups_total", "counter", "source", "Times that the kernel woke the loop, by what it told."},
	{"runtime_connected", "gauge", "", "0 while the container runtime does not answer."},
	{"nri_connected", "gauge", "", "1 while the runtime asks the agent whether pods may start."},
	{"runtime_operations_duration_seconds", "histogram", "operation",
		"How long calls of the container runtime took, failed ones included."},
	{"records_dropped_total", "counter", "",
		"Records of evictions that were given up because they could not be written."},
	{"frames_dropped_total", "counter", "", "Frames of a recording that were."},
	{"log_lines_dropped_total", "counter", "",
		"Lines of the log that were, because its reader was too slow."},
	{"events_dropped_total", "counter", "",
		"Events that readers of /v1/events were too slow for, so that they were cut off."},
	{"config_reloads_total", "counter", "outcome",
		"Times that a changed configuration was read: it holds now (taken), or is wrong (failed)."},
	{"config_last_reload_successful", "gauge", "",
		"0 while the configuration file is another than the one that holds, because it is wrong."},
	{"config_last_reload_success_timestamp_seconds", "gauge", "",
		"When the configuration that holds was loaded."},
}
