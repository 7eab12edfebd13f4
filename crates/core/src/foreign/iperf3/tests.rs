//! A client and a server against each other.
