package metrics

// Family describes a family of metrics. Histograms are in seconds.
type Family struct {
	Name    string // without Prefix
	Type    string // gauge, counter or histogram
	Labels  string // separated by commas
	Meaning string
}

// Prefix is the prefix of all names except process_ and go_, which are the usual names of every
// program.
const Prefix = "jettison_"

const signalLabel = "eviction_signal"

// Families are all families, in the order in which they are written. docs/reference/metrics.md is
// generated from them.
var Families = []Family{
	{"build_info", "gauge", "version,goversion",
		"Always 1. The labels are the version of the agent and of Go."},
	{"mode_info", "gauge", "beside_kubelet,disk,gc,dry_run,pods",
		"Always 1. The labels are the agent's modes: whether the node has a kubelet, " +
			"whether disk signals and garbage collection act or observe, dry run, and pods."},
	{"signal_available_bytes", "gauge", signalLabel,
		"Available bytes of a signal with a threshold, as last observed."},
	{"signal_available_inodes", "gauge", signalLabel,
		"Available inodes of a signal with a threshold, as last observed."},
	{"signal_available_tasks", "gauge", signalLabel,
		"Available tasks (threads) of a signal with a threshold, as last observed."},
	{"signal_available_ratio", "gauge", signalLabel,
		"Share of time in which tasks did not stall, of a pressure signal with a " +
			"threshold."},
	{"signal_capacity_bytes", "gauge", signalLabel,
		"Capacity of a signal in bytes, to which percentages of thresholds refer."},
	{"signal_capacity_inodes", "gauge", signalLabel,
		"Capacity of a signal in inodes, to which percentages of thresholds refer."},
	{"signal_capacity_tasks", "gauge", signalLabel,
		"Capacity of a signal in tasks (threads), to which percentages of thresholds " +
			"refer."},
	{"threshold_bytes", "gauge", signalLabel + ",kind",
		"Hard or soft threshold in bytes. It is met while less is available."},
	{"threshold_inodes", "gauge", signalLabel + ",kind",
		"Hard or soft threshold in inodes. It is met while less is available."},
	{"threshold_tasks", "gauge", signalLabel + ",kind",
		"Hard or soft threshold in tasks (threads). It is met while less is available."},
	{"threshold_ratio", "gauge", signalLabel + ",kind",
		"Hard or soft threshold of a pressure signal. It is met while " +
			"signal_available_ratio is below it."},
	{"pressure_stalled_ratio", "gauge", "resource,kind,window",
		"Share of time in which tasks of the node stalled (PSI), averaged by the kernel " +
			"over 10 s, 1 and 5 minutes."},
	{"threshold_met", "gauge", signalLabel,
		"1 while a threshold of the signal is met, regardless of grace periods."},
	{"condition_status", "gauge", "condition", "1 while a condition of the node is true."},
	{"signal_observed", "gauge", signalLabel,
		"0 while a signal with a threshold cannot be observed, so that the threshold has " +
			"no effect. Absent if the node lacks the resource, for example swap."},
	{"headroom_needed_bytes", "gauge", "",
		"Smallest hard threshold of memory.available that is safe on this node, as " +
			"measured."},
	{"source_up", "gauge", "source", "0 while a source of signals cannot be read."},
	{"source_last_success_timestamp_seconds", "gauge", "source",
		"Time of the last successful read of a source. Absent before the first one."},
	{"source_errors_total", "counter", "source", "Failed reads of a source."},
	{"evictions_total", "counter", signalLabel + ",outcome,qos_class,dry_run",
		"Evictions by outcome: back (recovered), notBack (not recovered), undying (the pod " +
			"did not die), dryRun (nothing was done). A pod that did not die and is tried " +
			"again counts again."},
	{"evictions_in_progress", "gauge", "", "Evictions without an outcome yet."},
	{"eviction_crossing_to_kill_seconds", "histogram", "",
		"Time from the first reading that met a hard threshold to the kill."},
	{"eviction_kill_to_recovery_seconds", "histogram", "",
		"Time from the kill or stop of a pod until enough was available again."},
	{"eviction_predicted_bytes_total", "counter", "",
		"Bytes that evictions were expected to free, for signals in bytes."},
	{"eviction_released_bytes_total", "counter", "",
		"Bytes that evictions freed, for signals in bytes."},
	{"kill_step_errors_total", "counter", "step",
		"Steps of the kill ladder that failed, completely or in part."},
	{"pods", "gauge", "state",
		"Pods by state. listed: the runtime lists them. with_object: with a pod object. " +
			"with_client_object: with an object from a client only. with_stale_object: the " +
			"client of the object was silent for five minutes. priority_unknown: running pods " +
			"of unknown priority. unprotected: such pods that no other rule protects. " +
			"protected: running pods that are never evicted. held_off: in a hold-off. " +
			"at_own_limit: hit their own memory limit a moment ago."},
	{"breaker_open", "gauge", "",
		"1 while the circuit breaker is open: evictions are stopped because they did not " +
			"help."},
	{"gate_decisions_total", "counter", "decision,reason",
		"Decisions of the gate. admitted; refused or observed (would have been refused), " +
			"with the kubelet's first reason; unknown: admitted because the node was unknown; " +
			"held_off: rejected during the hold-off after an eviction, containers included."},
	{"preemptions_total", "counter", "outcome",
		"Preemptions for a critical pod. made: enough resources were freed; failed: not " +
			"enough."},
	{"memory_reclaim_asked_bytes_total", "counter", "",
		"Bytes of pods' cold memory that the agent asked the kernel to reclaim."},
	{"memory_reclaim_freed_bytes_total", "counter", "", "Bytes by which these pods shrank."},
	{"memory_reclaim_refaulted_bytes_total", "counter", "",
		"Bytes that these pods read in again soon after."},
	{"gc_removed_total", "counter", "kind", "Items that garbage collection removed."},
	{"gc_freed_bytes_total", "counter", "kind",
		"Bytes by which free disk space grew in passes that removed something."},
	{"gc_failed_total", "counter", "kind", "Items that garbage collection failed to remove."},
	{"gc_duration_seconds", "histogram", "kind", "Duration of garbage collection passes."},
	{"gc_last_success_timestamp_seconds", "gauge", "kind",
		"End of the last pass without failures."},
	{"look_delay_seconds", "histogram", "", "Delay of a look at the node after its due time."},
	{"looks_total", "counter", "kind",
		"Looks by kind. cheap and slow: the node only. victims: pods, in detail only " +
			"likely victims. full: all pods."},
	{"wakeups_total", "counter", "source",
		"Wakeups of the loop by the kernel, by the source of the event."},
	{"runtime_connected", "gauge", "", "0 while the container runtime does not answer."},
	{"nri_connected", "gauge", "", "1 while the runtime asks the gate (NRI) before pods start."},
	{"runtime_operations_duration_seconds", "histogram", "operation",
		"Duration of calls to the container runtime, including failed ones."},
	{"records_dropped_total", "counter", "",
		"Eviction records that were dropped because they could not be written."},
	{"frames_dropped_total", "counter", "",
		"Frames of a recording that were dropped because they could not be written."},
	{"log_lines_dropped_total", "counter", "",
		"Log lines that were dropped because their reader was too slow."},
	{"events_dropped_total", "counter", "",
		"Events that were dropped because clients of /v1/events were too slow. These " +
			"clients are disconnected."},
	{"config_reloads_total", "counter", "outcome",
		"Reloads of a changed configuration. taken: in effect now. failed: invalid, " +
			"previous configuration kept."},
	{"config_last_reload_successful", "gauge", "",
		"0 while the configuration file is invalid, so that the previous configuration is " +
			"in effect."},
	{"config_last_reload_success_timestamp_seconds", "gauge", "",
		"Time at which the configuration in effect was loaded."},
}
