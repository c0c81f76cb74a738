// Package frames writes down what the agent saw and plays it again: one frame a look, one JSON
// object a line (docs/reference/formats.md).
//
//	format.go     Frame: the format
//	frame.go      a frame is made, of a live look
//	agent.go      what a Summary cannot hold
//	json.go       how both are read and written
//	check.go      what is wrong with a frame that is well-formed
//	plausible.go  numbers that can be true
//	reader.go     Reader: frames from a file, a compressed one too
//	view.go       a frame as the decision core sees it
//	player.go     Player: one policy over frames
//	output.go     Output: what a Player says
//	diff.go       where two outputs differ
//	strip.go      what is kept of a pod's object
//	recorder.go   Recorder: frames to a file, on a goroutine of its own
//	budget.go     how much it may write in a minute
//	segment.go    which file it writes to
//	recording.go  Recording: what a loop records its looks with
package frames

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Frame is one look at a node, and what became of what was decided then.
type Frame struct {
	// Time is RFC 3339, as it was written.
	Time string `json:"time"`
	// Summary is nil where every source failed.
	Summary *v1alpha1.Summary `json:"summary"`
	// Pods are all objects that are known from here on; nil: as before.
	Pods []v1.Pod `json:"pods,omitzero"`
	// AfterReclaim is what was seen after a reclaim in this frame; nil: it freed nothing.
	AfterReclaim *v1alpha1.Summary `json:"afterReclaim,omitzero"`
	// KillErrors says of pods that were evicted in this frame that they did not die, and why, by UID.
	KillErrors map[string]string `json:"killErrors,omitzero"`
	// Layout of the file systems from here on; nil: as before, at first one file system.
	Layout *Layout `json:"layout,omitzero"`
	// Admit are pods that ask to be taken.
	Admit []v1.Pod `json:"admit,omitzero"`
	Agent *Agent   `json:"agent,omitzero"`
	// AgentAfterReclaim belongs to AfterReclaim; nil: Agent does.
	AgentAfterReclaim *Agent `json:"agentAfterReclaim,omitzero"`

	at time.Time // Time, parsed
	// of a frame made by FromLook: what a Recorder makes Pods of; nil: it is not such a frame
	objects []*v1.Pod
}

// Layout says which of the node's file systems are the same (stats.Layout).
type Layout struct {
	DedicatedImageFs bool `json:"dedicatedImageFs"`
	SplitContainerFs bool `json:"splitContainerFs"`
}

// At is the frame's time.
func (f *Frame) At() time.Time { return f.at }
