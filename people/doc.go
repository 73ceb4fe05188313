// Package people is what persons may see of a ledger and decide on it: who they are, which roles and tenants they have,
// and how operations, requests for approval and the audit are read for them. The command line, the API and the console
// stand on it; what a decision does to an operation is package toolguard's business.
package people
