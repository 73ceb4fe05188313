// Package oncehttp sends an HTTP request once, and knows whether it left.
//
// Start with [Send]. net/http by itself sends a request again when a kept connection breaks, and follows redirects with
// the body; and from its errors nobody can tell whether a request may have arrived. Here a request leaves on one
// connection at most, and an error either proves that no byte of it left, or leaves open what happened.
//
// The package must not know what the request is for, nor who asks.
package oncehttp
