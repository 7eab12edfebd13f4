//! iperf3's clients at the endpoint, its server used, and strangers that speak a part of its
//! protocol.

mod bench;
mod limits;
mod served;
mod strangers;
mod used;
#[cfg(feature = "iperf3-auth")]
mod users;

#[cfg(not(feature = "iperf3-auth"))]
#[test]
fn without_the_feature_a_list_of_users_is_refused_with_the_way_to_get_it() {
    let list = format!("anna,{}", "0".repeat(64));
    let error = linerate_engine::Iperf3Access::new(&list, "", false).unwrap_err();
    assert!(error.to_string().contains("--features iperf3-auth"), "{error}");
}
