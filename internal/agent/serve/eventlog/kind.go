package eventlog

import (
	"strings"

	"jettison/api"
)

// kinds are the kinds of events by how the log's messages begin. What is not here is of the agent
// itself.
var kinds = []struct {
	kind     api.EventKind
	messages []string
}{
	{api.EventCondition, []string{"condition", "evictions are stopped", "evictions go on",
		"no eviction"}},
	{api.EventEviction, []string{
		"evicting", "evicted", "eviction abandoned", "would evict", "the grace period is cut short",
		"the stop of a disk's victim is cut short",
		"the victim does not die", "the victim cannot be evicted", "the runtime did not clean up",
		"the runtime is slow to clean up",
		"going on with an eviction", "stopped during an eviction", "removed what a pod left",
		"what a pod has left stays",
		"not everything that a pod left", "unmounted a pod's", "a pod's shared memory",
		"not all volumes in memory", "self-test",
		"the hard threshold of memory.available is smaller",
	}},
	{api.EventGate, []string{
		"a pod is refused", "a pod would be refused", "an evicted pod is kept out",
		"making room for a critical pod",
		"there is room for a critical pod", "no room could be made",
	}},
	{api.EventGarbage, []string{
		"garbage", "collecting garbage", "not all garbage", "no garbage is collected", "rotated logs",
		"some logs could not be rotated",
	}},
	{api.EventMemory, []string{
		"reclaimed memory", "memory reclaim is off", "memory is not reclaimed",
		"memory that pods request", "node allocatable",
		"cgroups of pods are not", "nothing is written to cgroups of pods", "put back what was written",
	}},
	{api.EventPod, []string{
		"a pod is at a memory limit", "the kernel's OOM killer", "a pod object of a client",
		"more pod objects", "a static pod's manifest",
		"pods of unknown priority", "no pod of unknown priority", "the kubelet tells of its pods",
		"the kubelet does not tell", "the runtime's status of a pod",
	}},
	{api.EventRuntime, []string{
		"lost the runtime", "the runtime is back", "the runtime tells of its pods",
		"the runtime does not tell", "no runtime events",
		"waiting for the container runtime",
	}},
	{api.EventSource, []string{
		"cannot read the node's", "everything is read again", "the signal is",
		"some pods could not be measured", "file systems and disk usage",
		"files without a name", "no wake", "watching less than wanted",
	}},
}

// kindOf is the kind of the longest beginning that fits.
func kindOf(message string) api.EventKind {
	kind, longest := api.EventAgent, 0
	for _, k := range kinds {
		for _, begin := range k.messages {
			if len(begin) > longest && strings.HasPrefix(message, begin) {
				kind, longest = k.kind, len(begin)
			}
		}
	}
	return kind
}
