// Package policyfile reads policies of the descheduler. It decodes v1alpha2 strictly and reports
// errors with their lines. It also converts v1alpha1 to v1alpha2.
//
//	decode.go  Decode: a policy from its file
//	strict.go  checker: checks specific to policies, in addition to strict.Checker
//	migrate.go Migrate: v1alpha1 to v1alpha2
package policyfile
