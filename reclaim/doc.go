// Package reclaim will plan what can be given back before a pod has to go: dead containers, sandboxes, logs, images, cold
// memory. Plans will be values, made by pure code from a stats.Summary. It is empty so far.
package reclaim
